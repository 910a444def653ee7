package playground

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const (
	writesEvery = time.Second           // a holder
	looksEvery  = 10 * time.Millisecond // the referee
	settles     = time.Second           // a client that has been idle for longer must have no znode
)

// store is what the holders write to: a row with the latest writer and the highest token. Its lanes in a picture show
// both stores, one that compares tokens and one that does not.
type store struct {
	Writer  string
	Token   zklock.Token // the highest it has seen
	Taken   int
	Refused int
	Lost    int // writes of later holders that a write of an earlier one overwrote
}

// judge records violations of the guarantees.
type judge struct {
	together time.Duration // how long two clients held at the same time
	pair     string
	order    bool         // a token was lower than one before it
	latest   zklock.Token // of all holds
	left     string       // a client that was idle and had a znode
}

// referee makes the holders write, and checks all clients, until the stage is closed.
func (s *Stage) referee() {
	tick := time.NewTicker(looksEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			s.lookLocked()
			s.mu.Unlock()
		case <-s.ctx.Done():
			return
		}
	}
}

// lookLocked is one check of all clients.
func (s *Stage) lookLocked() {
	now := time.Now()
	var holders []string
	for _, c := range s.clients {
		s.believeLocked(c)
		if !c.p.believes {
			continue
		}
		holders = append(holders, c.name)
		if !c.p.next.After(now) {
			c.p.next = c.p.next.Add(writesEvery)
			s.writeLocked(c, c.p.hold)
		}
	}
	if len(holders) > 1 {
		s.judge.together += looksEvery
		if pair := strings.Join(holders, " and "); pair != s.judge.pair {
			s.judge.pair = pair
			s.picture.Warn(holders[len(holders)-1], "%s hold at the same time", pair)
		}
	}
	s.searchLocked(now)
}

// writeLocked makes a holder write to the store.
func (s *Stage) writeLocked(c *client, h *zklock.Hold) {
	c.p.writes++
	stale, first := h.Token() < s.store.Token, h.Token() > s.store.Token
	s.store.Token = max(s.store.Token, h.Token())
	newer := s.store.Writer
	switch {
	case stale && !s.rules.NoToken:
		s.store.Refused++
		s.tellStore("store", false, "refuses %s's write: its token is too low", c.name)
	case stale:
		s.store.Taken++
		if newer != c.name {
			s.store.Lost++
			s.tellStore("store", true, "accepts %s's late write, which overwrites that of %s", c.name, newer)
		}
		s.store.Writer = c.name
	default:
		s.store.Taken++
		s.store.Writer = c.name
	}
	switch {
	case stale:
		s.tellStore("with token", false, "the store refuses %s's write: its token is too low", c.name)
		s.tellStore("without", true, "a store that compares no tokens accepts it: it overwrites a later holder's write")
	case first:
		s.tellStore("with token", false, "the store accepts %s's write", c.name)
	}
}

// tellStore records an event of a store, if the picture has a lane for it.
func (s *Stage) tellStore(lane string, bad bool, format string, args ...any) {
	switch {
	case !slices.Contains(s.lanes, lane):
	case bad:
		s.picture.Warn(lane, format, args...)
	default:
		s.picture.Tell(lane, format, args...)
	}
}

// heldLocked records that a client has got the lock.
func (j *judge) heldLocked(h *zklock.Hold) {
	j.order = j.order || h.Token() <= j.latest
	j.latest = max(j.latest, h.Token())
}

// searchLocked looks for znodes of clients that are connected and have been idle for longer than settles, once in each idle
// period. A client is not idle during an Unlock: that ends the hold first, and may need another connection to delete the znode.
func (s *Stage) searchLocked(now time.Time) {
	for _, c := range s.clients {
		p := c.p
		switch {
		case p.link != up || p.asked || p.unlocks > 0:
			p.idle, p.searched = time.Time{}, false
		case p.idle.IsZero():
			p.idle = now
		case !p.searched && now.Sub(p.idle) > settles:
			own := p.zk.Status().Session
			if p.searched = own.State == session.Connected; p.searched && s.sessionHasZnode(own.ID) {
				s.judge.left = c.name
			}
		}
	}
}

// sessionHasZnode reports whether a session has a znode.
func (s *Stage) sessionHasZnode(id int64) bool {
	return slices.ContainsFunc(s.srv.Sessions(), func(ss zktest.Session) bool { return ss.ID == id && len(ss.Ephemerals) > 0 })
}

// Guarantee is a promise of the library, and whether it has held so far.
type Guarantee struct {
	Name   string
	Holds  bool
	Detail string
}

// guaranteesLocked is the referee's verdict so far.
func (s *Stage) guaranteesLocked() []Guarantee {
	j, st := &s.judge, &s.store
	one := Guarantee{"One holder", j.together == 0, "no two clients acted as holders at the same time"}
	if !one.Holds {
		one.Detail = fmt.Sprintf("%s held together for %.2f s", j.pair, j.together.Seconds())
	}
	row := Guarantee{"No write is lost", st.Lost == 0, fmt.Sprintf("%d writes accepted, %d of earlier holders refused", st.Taken, st.Refused)}
	if !row.Holds {
		row.Detail = fmt.Sprintf("%d writes of later holders overwritten by earlier ones", st.Lost)
	}
	order := Guarantee{"Tokens grow", !j.order, fmt.Sprintf("the latest is %d", j.latest)}
	if j.order {
		order.Detail = "a later holder got a lower token"
	}
	left := Guarantee{"Nothing left behind", j.left == "", "no idle client has a znode"}
	if j.left != "" {
		left.Detail = j.left + " is idle and has a znode"
	}
	return []Guarantee{one, row, order, left}
}
