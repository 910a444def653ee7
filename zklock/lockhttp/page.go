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
	Refresh int    // seconds; 0: never
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

// Connected says whether the session's servers can be reached.
func (d pageData) Connected() bool { return d.Session.connected }

// links is a lock's paths, with what the links to them carry on.
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

// InLine is how many stand in the queue.
func (d pageData) InLine() int { return d.Queue.Holding + d.Queue.Waiting }

// First and Last are the positions of the contenders that are shown.
func (d pageData) First() int { return d.Queue.Line[0].Position }
func (d pageData) Last() int  { return d.Queue.Line[len(d.Queue.Line)-1].Position }

// Earlier and Later are where the pages before and behind begin; -1: there is none.
func (d pageData) Earlier() int {
	if d.from == 0 {
		return -1
	}
	return max(0, min(d.from, d.InLine())-queueRows)
}

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

// age is a time that has passed, in two units at most. One by another clock may lie ahead: then
// none has.
func age(now, since time.Time) string { return rough(max(now.Sub(since), 0)) }

// left is how long a lease lasts.
func left(now, until time.Time) template.HTML {
	if d := until.Sub(now); d > 0 {
		return template.HTML(`<span class="good">safe</span> <span class="n">for ` + rough(d) + `</span>`)
	}
	return `<span class="bad">over</span>`
}

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

// fromOf reads how many contenders stand before the first that is asked for.
func fromOf(text string) (int, bool) {
	if text == "" {
		return 0, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0
}

// maxRefresh is in seconds.
const maxRefresh = 3600

// refreshOf reads a number of seconds; false: it is none that makes sense.
func refreshOf(text string) (int, bool) {
	if text == "" {
		return 0, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1 && n <= maxRefresh
}
