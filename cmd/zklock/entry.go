package main

import (
	"context"
	"strconv"
	"time"

	"github.com/zklock/locker/internal/queuejson"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// lockEntry is one lock as --json shows it. Every command that lists locks uses this schema: see
// zklock help json.
type lockEntry struct{ queuejson.Queue }

// readEntry reads rows contenders of a lock's queue, after the first from ones.
func readEntry(
	ctx context.Context, c *zklock.Client, path string, from, rows int,
) (lockEntry, error) {
	page, err := admin.ReadQueue(ctx, c, path, from, rows)
	return newEntry(page), err
}

func newEntry(p admin.QueuePage) lockEntry {
	q := queuejson.New(p.Path)
	q.Kind, q.Permits = p.Kind, p.Permits
	q.Holding, q.Waiting = p.Holding, p.Waiting
	for i, k := range p.Contenders {
		q.Line = append(q.Line, newMember(p.From+i+1, k))
	}
	return lockEntry{q}
}

// newMember returns a contender as --json shows it.
func newMember(position int, k admin.Contender) queuejson.Member {
	return queuejson.NewMember(position, queuejson.Contender[zklock.Token](k))
}

// kind returns the lock's kind, with the number of its permits.
func (e lockEntry) kind() string {
	if e.Permits > 0 {
		return e.Kind + " of " + strconv.Itoa(e.Permits)
	}
	return e.Kind
}

// holder names the holders: one, or one and the number of the others.
func (e lockEntry) holder() string {
	for _, m := range e.Line {
		switch {
		case m.Holds && e.Holding > 1:
			return displayName(m) + " +" + strconv.Itoa(e.Holding-1)
		case m.Holds:
			return displayName(m)
		}
	}
	return ""
}

// since returns when the contender of the longest hold was created. It returns zero if there is
// none.
func (e lockEntry) since() time.Time {
	for _, m := range e.Line {
		if m.Holds {
			return m.Since
		}
	}
	return time.Time{}
}

// displayName names a contender on a terminal.
func displayName(m queuejson.Member) string {
	at := ""
	if m.Host != "" {
		at = m.Host + ":" + strconv.Itoa(m.PID)
	}
	switch {
	case m.Owner == "" && at == "" && m.Token == 0:
		return "(may not be read)"
	case m.Owner == "" && at == "":
		return "session " + m.Session
	case m.Owner == "":
		return short(at, 60)
	case at == "":
		return short(m.Owner, 60)
	}
	return short(m.Owner, 40) + " (" + short(at, 60) + ")"
}
