package lockhttp

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the page
	"encoding/base64"
	"html/template"
	"os"
	"path"
	"strconv"
	"sync"
	"time"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// policy lets the browser use the page's own style sheet and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"base": path.Base, "shown": shown, "whole": whole, "said": said, "age": age, "left": left,
	"stamp": stamp,
	"text":  func(b []byte) string { return string(b) },
}).Parse(pageText))

// pageData is what the template shows.
type pageData struct {
	view
	CSS     template.CSS
	Process string
	Refresh int    // seconds; 0 means never
	Wanted  string // the path whose queue is asked for
}

// html renders the page.
func (v view) html(refresh int) ([]byte, error) {
	d := pageData{view: v, CSS: template.CSS(pageStyle), Process: process(), Refresh: refresh}
	if v.Queue != nil {
		d.Wanted = v.Queue.Path
	}
	var b bytes.Buffer
	if err := page.Execute(&b, d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Connected reports whether the session's servers can be reached.
func (d pageData) Connected() bool { return d.Session.connected }

// links are a lock's paths, with the parameter that the links to them keep.
type links struct {
	Paths   []string
	Refresh int
}

// Linked returns the links of a lock, one for each path of a MultiLock's.
func (d pageData) Linked(l lockView) links {
	if len(l.Paths) == 0 {
		return links{[]string{l.Path}, d.Refresh}
	}
	return links{l.Paths, d.Refresh}
}

// InLine returns how many contenders are in the queue.
func (d pageData) InLine() int { return d.Queue.Holding + d.Queue.Waiting }

// First returns the position of the first contender that is shown.
func (d pageData) First() int { return d.Queue.Line[0].Position }

// Last returns the position of the last contender that is shown.
func (d pageData) Last() int { return d.Queue.Line[len(d.Queue.Line)-1].Position }

// Earlier returns where the page before this one begins, or -1 if there is none.
func (d pageData) Earlier() int {
	if d.from == 0 {
		return -1
	}
	return max(0, min(d.from, d.InLine())-queueRows)
}

// Later returns where the page behind this one begins, or -1 if there is none.
func (d pageData) Later() int {
	if d.from+queueRows >= d.InLine() {
		return -1
	}
	return d.from + queueRows
}

// process names this process as a Contender names it.
var process = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host" // no reason to show nothing
	}
	return host + ":" + strconv.Itoa(os.Getpid())
})

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// age returns how much time has passed since a time, in two units at most. If since is by another
// clock, it may be later than now: then no time has passed.
func age(now, since time.Time) string { return rough(max(now.Sub(since), 0)) }

// left returns how long a lease lasts from now on.
func left(now, until time.Time) template.HTML {
	d := until.Sub(now)
	if d <= 0 {
		return `<span class="bad">over</span>`
	}
	text := `<span class="good">safe</span> <span class="n">for ` + rough(d) + `</span>`
	return template.HTML(text)
}

// rough returns a duration in two units at most.
func rough(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min " + strconv.Itoa(int(d.Seconds())%60) + " s"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h " + strconv.Itoa(int(d.Minutes())%60) + " min"
	}
	return strconv.Itoa(int(d.Hours())/24) + " d " + strconv.Itoa(int(d.Hours())%24) + " h"
}

// fromOf reads how many contenders are before the first that is asked for. It returns false if text
// is not such a number.
func fromOf(text string) (int, bool) {
	if text == "" {
		return 0, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0
}

// maxRefresh is in seconds.
const maxRefresh = 3600

// refreshOf reads a number of seconds. It returns false if text is not a number from 1 to
// maxRefresh.
func refreshOf(text string) (int, bool) {
	if text == "" {
		return 0, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1 && n <= maxRefresh
}
