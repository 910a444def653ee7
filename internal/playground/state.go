package playground

import (
	"cmp"
	"slices"
	"time"

	"github.com/zklock/locker/zklock"
)

// State is what the page shows.
type State struct {
	At         time.Duration // since the story's beginning
	Ended      bool          // the story
	Error      string        // of the playground itself
	Clients    []ClientState
	Queue      []Contender
	Servers    []ServerState
	Store      store
	Guarantees []Guarantee
}

// ClientState is a client's own view of itself, and the ensemble's of its session.
type ClientState struct {
	Name      string
	Link      string // "", "cut off", "stopped", "dead"
	Server    string // that it is connected to; "" when it is not
	Asked     bool   // a call waits, or holds
	Holds     bool   // it acts as the holder
	Ahead     int    // of a call that waits: how many contenders are in its way, as of its latest list
	Token     zklock.Token
	Lease     time.Duration // what is left of a hold's lease; may be negative
	ExpiresIn time.Duration // until the ensemble ends its session if nothing arrives from it; 0: no session
	Writes    int
	Last      string // why the latest hold ended
}

// Contender is a znode in the lock's directory.
type Contender struct {
	Number string
	Owner  string
	Token  int64
}

// ServerState is one of the ensemble.
type ServerState struct {
	Name       string
	Leads, Cut bool
}

// State returns the present state.
func (s *Stage) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := State{At: s.picture.Now(), Ended: s.ended, Store: s.store, Guarantees: s.guaranteesLocked(), Queue: s.queue()}
	if s.failed != nil {
		st.Error = s.failed.Error()
	}
	names := map[string]string{}
	for _, m := range s.servers {
		names[m.Addr()] = m.name
		st.Servers = append(st.Servers, ServerState{m.name, m.leads, m.cut})
	}
	expires := map[int64]time.Duration{}
	for _, ss := range s.srv.Sessions() {
		expires[ss.ID] = ss.ExpiresIn
	}
	for _, c := range s.clients {
		p := c.p
		own := p.zk.Status()
		cs := ClientState{Name: c.name, Link: string(p.link), Server: names[own.Session.Server], Asked: p.asked, Holds: p.believes,
			ExpiresIn: expires[own.Session.ID], Writes: p.writes, Last: p.last}
		for _, w := range own.Waits {
			cs.Ahead = w.Ahead
		}
		if p.hold != nil {
			cs.Token, cs.Lease = p.hold.Token(), time.Until(p.hold.SafeUntil())
		}
		st.Clients = append(st.Clients, cs)
	}
	return st
}

// queue lists the contenders in the order of their numbers.
func (s *Stage) queue() []Contender {
	var all []Contender
	for _, name := range s.srv.Children(path) {
		if n, ok := s.srv.Node(path + "/" + name); ok {
			all = append(all, Contender{name[max(0, len(name)-10):], owner(n), n.Stat.Czxid})
		}
	}
	slices.SortFunc(all, func(a, b Contender) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// Picture draws what has happened in the last d.
func (s *Stage) Picture(d time.Duration) string { return s.picture.Latest(d).SVG() }
