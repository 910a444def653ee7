package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// view is the state of top: the last looks, and the user's position. It does no I/O.
type view struct {
	root   string
	began  time.Time
	last   sight  // the last one of the tree without an error
	queue  sight  // the last one of a queue without an error
	failed sight  // the last one with an error since
	chosen string // the path of the lock
	open   bool   // its queue is shown
	row    int    // of the chosen lock, in case it disappears
	first  bool   // there was a look
}

// saw records a look.
func (v *view) saw(s sight) {
	switch {
	case s.err != nil:
		v.failed = s
		return
	case s.queue != nil:
		v.queue, v.failed = s, sight{}
		return
	}
	if !v.first && len(s.locks) == 1 && s.locks[0].Path == v.root {
		v.open = true // the path is a lock: its queue was asked for
	}
	v.first, v.last, v.failed = true, s, sight{}
	if i := v.index(); i >= 0 {
		v.row = i
	} else if !v.open {
		v.choose(v.row)
	}
	if v.open && v.chosen == "" {
		v.choose(0)
	}
}

// queuePath is the lock whose queue is shown; "" when the list is shown.
func (v *view) queuePath() string {
	if !v.open {
		return ""
	}
	return v.chosen
}

func (v *view) index() int {
	return slices.IndexFunc(v.last.locks, func(e lockEntry) bool { return e.Path == v.chosen })
}

func (v *view) choose(row int) {
	if len(v.last.locks) == 0 {
		return
	}
	v.row = min(max(row, 0), len(v.last.locks)-1)
	v.chosen = v.last.locks[v.row].Path
}

// key handles a key; true: quit.
func (v *view) key(k key) bool {
	switch k {
	case keyQuit:
		return true
	case keyUp:
		v.choose(v.row - 1)
	case keyDown:
		v.choose(v.row + 1)
	case keyEnter:
		v.open = v.chosen != ""
	case keyBack:
		v.open = false
	}
	return false
}

// render draws a frame: at most height lines of at most width characters.
func (v *view) render(now time.Time, width, height int) []string {
	lines := []string{v.title(now), ""}
	table, mark := v.table(now)
	head, body := table[0], table[1:]
	room := max(height-len(lines)-2, 1)
	from := 0
	if mark >= room {
		from = mark - room + 1
	}
	lines = append(lines, "  "+head)
	for i := from; i < min(len(body), from+room); i++ {
		prefix := "  "
		if i == mark {
			prefix = "> "
		}
		lines = append(lines, prefix+body[i])
	}
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	keys := "q quit   up/down choose   enter queue"
	if v.open {
		keys = "q quit   up/down next lock   esc back"
	}
	lines = append(lines[:min(len(lines), max(height-1, 0))], keys)
	for i := range lines {
		lines[i] = short(lines[i], max(width, 1))
	}
	return lines[:min(len(lines), height)]
}

func (v *view) title(now time.Time) string {
	what := fmt.Sprintf("zklock top %s   %s", v.root, now.Format("15:04:05"))
	switch {
	case v.failed.err != nil:
		return fmt.Sprintf("%s   NOT UP TO DATE: %v", what, v.failed.err)
	case !v.first:
		return what + "   looking …"
	case now.Sub(v.last.at) > 5*time.Second+restFor(0, v.last.took):
		return fmt.Sprintf("%s   no answer for %s", what, age(now.Sub(v.last.at)))
	}
	waiting := 0
	for _, e := range v.last.locks {
		waiting += e.Waiting
	}
	what = fmt.Sprintf("%s   locks: %d   waiting: %d   looked at %d znodes", what, len(v.last.locks), waiting, v.last.looked)
	if v.last.cut {
		what += " (--limit)"
	}
	if v.last.hidden > 0 {
		what += fmt.Sprintf(" (%d may not be read)", v.last.hidden)
	}
	if v.last.took >= 100*time.Millisecond {
		what += fmt.Sprintf(" in %v", v.last.took.Round(100*time.Millisecond))
	}
	return what
}

// table returns the lines of the open list or queue, and which of them, after the head, is marked; -1: none.
func (v *view) table(now time.Time) ([]string, int) {
	var out bytes.Buffer
	mark := -1
	if v.open {
		var e lockEntry
		e.Path = v.chosen
		if q := v.queue.queue; q != nil && q.Path == v.chosen {
			e = *q
		} else if i := v.index(); i >= 0 {
			e = v.last.locks[i]
		}
		fmt.Fprintf(&out, "%s: %d holding, %d waiting", clean(e.Path), e.Holding, e.Waiting)
		if e.Permits > 0 {
			fmt.Fprintf(&out, ", %d permits", e.Permits)
		}
		fmt.Fprintln(&out)
		_ = printQueue(&out, e, now) // a buffer does not fail
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), mark
	}
	_ = printLocks(&out, v.last.locks, now)
	if len(v.last.locks) > 0 {
		mark = v.row
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), mark
}
