package main

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/zklock"
)

// lockEntry is one lock as --json shows it. Every command that lists locks uses this schema: see zklock help json.
type lockEntry struct {
	Path    string       `json:"path"`
	Kind    string       `json:"kind,omitempty"` // of the first in line
	Holding int          `json:"holding"`        // contenders that hold
	Waiting int          `json:"waiting"`        // contenders that wait
	Line    []lineMember `json:"line"`           // in order
}

// lineMember is one who holds or waits.
type lineMember struct {
	Position int       `json:"position"` // from 1
	Holds    bool      `json:"holds"`
	Kind     string    `json:"kind"`
	Permits  int       `json:"permits,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Session  string    `json:"session"`
	Token    int64     `json:"token"`
	Node     string    `json:"node"`
	Data     []byte    `json:"data,omitempty"` // base64
}

func newMember(position int, k zklock.Contender) lineMember {
	return lineMember{Position: position, Holds: k.Holds, Kind: k.Kind, Permits: k.Permits, Owner: k.Owner, Host: k.Host,
		PID: k.PID, Since: k.Since.UTC(), Session: sessionID(k.Session), Token: int64(k.Token), Node: k.Node, Data: k.Data}
}

func newEntry(path string, queue []zklock.Contender) lockEntry {
	e := lockEntry{Path: path, Line: []lineMember{}}
	for i, k := range queue {
		m := newMember(i+1, k)
		if e.Line = append(e.Line, m); k.Holds {
			e.Holding++
		} else {
			e.Waiting++
		}
	}
	if len(queue) > 0 {
		e.Kind = queue[0].Kind
	}
	return e
}

// holder names who holds: one, or one and how many more.
func (e lockEntry) holder() string {
	name, more := "", 0
	for _, m := range e.Line {
		switch {
		case !m.Holds:
		case name == "":
			name = m.who()
		default:
			more++
		}
	}
	if more > 0 {
		name += " +" + strconv.Itoa(more)
	}
	return name
}

// since is when the longest hold began to stand in line.
func (e lockEntry) since() time.Time {
	for _, m := range e.Line {
		if m.Holds {
			return m.Since
		}
	}
	return time.Time{}
}

// who names a contender on a terminal.
func (m lineMember) who() string {
	at := ""
	if m.Host != "" {
		at = m.Host + ":" + strconv.Itoa(m.PID)
	}
	switch {
	case m.Owner == "" && at == "":
		return "session " + m.Session
	case m.Owner == "":
		return short(at, 60)
	case at == "":
		return short(m.Owner, 60)
	}
	return short(m.Owner, 40) + " (" + short(at, 60) + ")"
}

func (m lineMember) age(now time.Time) string {
	if m.Since.IsZero() {
		return "-"
	}
	return age(now.Sub(m.Since))
}

func who(k zklock.Contender) string { return newMember(0, k).who() }

// contender reads a znode as Queue does, for one that has been read already.
func contender(node string, data []byte, stat zk.Stat) zklock.Contender {
	k := zklock.Contender{Node: node, Session: stat.EphemeralOwner, Token: zklock.Token(stat.Czxid)}
	var id struct {
		Owner, Host string
		PID         int
	}
	if json.Unmarshal(data, &id) == nil && id.Host != "" {
		k.Owner, k.Host, k.PID = id.Owner, id.Host, id.PID
	} else if len(data) <= 200 && clean(string(data)) == string(data) {
		k.Owner = string(data)
	}
	return k
}
