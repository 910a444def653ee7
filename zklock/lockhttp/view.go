package lockhttp

import (
	"fmt"
	"time"

	"github.com/zklock/locker/internal/queuejson"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// view is what the page and the JSON show. Times are RFC 3339, durations seconds.
type view struct {
	Time    time.Time        `json:"time"`
	Session sessionView      `json:"session"`
	Holding int              `json:"holding"` // how many in all; Holds has maxRows at most
	Holds   []holdView       `json:"holds"`
	Waiting int              `json:"waiting"`
	Waits   []waitView       `json:"waits"`
	Queue   *queuejson.Queue `json:"queue,omitempty"`

	from int // how many contenders are before the first of Queue
}

type sessionView struct {
	ID        string    `json:"id"` // hexadecimal, as the ensemble's logs have it
	State     string    `json:"state"`
	Server    string    `json:"server,omitempty"`
	Timeout   float64   `json:"timeout_seconds"`
	SafeUntil time.Time `json:"safe_until"`
	Error     string    `json:"error,omitempty"`

	connected bool
}

type lockView struct {
	Call    uint64   `json:"call"`
	Kind    string   `json:"kind"`
	Path    string   `json:"path"`
	Paths   []string `json:"paths,omitempty"`
	Permits int      `json:"permits,omitempty"`
	Owner   string   `json:"owner,omitempty"`
}

// Lock is for the template, which does not see an embedded field of ours.
func (l lockView) Lock() lockView { return l }

type holdView struct {
	lockView
	Node      string    `json:"node"`
	Token     int64     `json:"token"`
	Since     time.Time `json:"since"`
	SafeUntil time.Time `json:"safe_until"`
	Count     int       `json:"count"`
}

type waitView struct {
	lockView
	Since       time.Time `json:"since"`
	Ahead       int       `json:"ahead"`
	HolderNode  string    `json:"holder,omitempty"`
	HolderOwner string    `json:"who,omitempty"`
}

// viewOf returns what is shown of the Client's status at now.
func viewOf(st zklock.Status, now time.Time) view {
	v := view{
		Time:    now,
		Session: sessionOf(st.Session),
		Holding: len(st.Holds),
		Holds:   []holdView{},
		Waiting: len(st.Waits),
		Waits:   []waitView{},
	}
	for _, h := range st.Holds[:min(len(st.Holds), maxRows)] {
		v.Holds = append(v.Holds, holdView{
			lockView:  lockOf(h),
			Node:      h.Node,
			Token:     int64(h.Token),
			Since:     h.Since,
			SafeUntil: h.SafeUntil,
			Count:     h.Count,
		})
	}
	for _, w := range st.Waits[:min(len(st.Waits), maxRows)] {
		v.Waits = append(v.Waits, waitView{
			lockView:    lockOf(w),
			Since:       w.Since,
			Ahead:       w.Ahead,
			HolderNode:  w.HolderNode,
			HolderOwner: w.HolderOwner,
		})
	}
	return v
}

func sessionOf(s zklock.SessionStatus) sessionView {
	v := sessionView{
		ID:        hex(s.ID),
		State:     s.State.String(),
		Server:    s.Server,
		Timeout:   s.Timeout.Seconds(),
		SafeUntil: s.SafeUntil,
		connected: s.State == session.Connected,
	}
	if s.Err != nil {
		v.Error = s.Err.Error()
	}
	return v
}

func lockOf(i zklock.LockInfo) lockView {
	return lockView{
		Call:    i.Call,
		Kind:    string(i.Kind),
		Path:    i.Path,
		Paths:   i.Paths,
		Permits: i.Permits,
		Owner:   i.Owner,
	}
}

func queueOf(p admin.QueuePage) queuejson.Queue {
	q := queuejson.New(p.Path)
	q.Kind, q.Permits = p.Kind, p.Permits
	q.Holding, q.Waiting = p.Holding, p.Waiting
	for i, k := range p.Contenders {
		position := p.From + i + 1
		q.Line = append(q.Line,
			queuejson.NewMember(position, queuejson.Contender[zklock.Token](k)))
	}
	return q
}

func hex(id int64) string { return fmt.Sprintf("%#x", uint64(id)) }

// maxShown bounds a text on the page, in characters: owners and data may be 64 KB long.
const maxShown = 300

// shown makes a text that others wrote fit for a page. A character that can't be seen, or turns the
// direction of what follows, is written as an escape, and a text that is too long is cut. The
// template escapes for HTML.
func shown(s string) string { return text.Short(s, maxShown) }

// whole is shown for a text that must not be cut: a path that may be sent again.
func whole(s string) string { return text.Clean(s) }

// maxSaid bounds an error on the page, in characters. An error may say for each server what was the
// matter there, and only the last may say why.
const maxSaid = 2000

// said is shown for an error of ours, in which others' texts have been cut already.
func said(s string) string { return text.Short(s, maxSaid) }
