package zktest

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/zklock/locker/zktest/fault"
)

// These functions return copies, all made at one moment under the server's lock: they can be kept
// and compared, and do not change. To wait for a state, see Server.Await.

// Session is the server's state of one session at the moment of the call.
type Session struct {
	ID            int64         // as in Stat.EphemeralOwner
	Timeout       time.Duration // as negotiated
	Connected     bool
	Member        *Member       // where its client was last seen
	ExpiresIn     time.Duration // without another sign of life
	Ephemerals    []string      // sorted; as the leader has them
	Watches       []Watch       // sorted by path
	Requests      map[fault.Op]int
	Notifications int
}

// Node is one znode.
type Node struct {
	Data []byte
	ACL  []ACL
	Stat Stat
}

// Sessions lists the live sessions in the order in which they began.
func (s *Server) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Session
	for _, ss := range s.sortedSessionsLocked() {
		out = append(out, s.describeLocked(ss))
	}
	return out
}

// Session returns one live session; ok is false if there is none of that id.
func (s *Server) Session(id int64) (info Session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss := s.sessions[id]
	if ss == nil {
		return Session{}, false
	}
	return s.describeLocked(ss), true
}

// describeLocked copies the state of a session.
func (s *Server) describeLocked(ss *session) Session {
	return Session{
		ID: ss.id, Timeout: ss.timeout, Connected: ss.conn != nil, Member: ss.owner,
		ExpiresIn:  ss.expires - time.Since(s.born),
		Ephemerals: s.leader.tree.owned(ss.id),
		Watches:    s.watchesLocked(func(w Watch) bool { return w.Session == ss.id }),
		Requests:   maps.Clone(ss.requests), Notifications: ss.notified,
	}
}

// Watches lists all watches, sorted by path. A session's watches go with its connection.
func (s *Server) Watches() []Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchesLocked(func(Watch) bool { return true })
}

// watchesLocked lists the watches of all members for which want is true.
func (s *Server) watchesLocked(want func(Watch) bool) []Watch {
	var out []Watch
	for _, m := range s.members {
		for _, w := range append(m.dataWatches.list(WatchData),
			m.childWatches.list(WatchChildren)...) {
			if want(w) {
				out = append(out, w)
			}
		}
	}
	sortWatches(out)
	return out
}

// WatchCount returns the number of watches of all sessions.
func (s *Server) WatchCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.members {
		n += m.dataWatches.size() + m.childWatches.size()
	}
	return n
}

// Nodes returns a copy of every znode by its path, the server's own under /zookeeper included.
func (s *Server) Nodes() map[string]Node { return s.leader.Nodes() }

// Nodes is Server.Nodes as this member sees it.
func (m *Member) Nodes() map[string]Node {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	out := make(map[string]Node, len(m.tree.nodes))
	for p, n := range m.tree.nodes {
		if p != "" { // "" is a second name of the root
			out[p] = n.export()
		}
	}
	return out
}

// export copies a node: changes to the copy do not reach the tree.
func (n *node) export() Node {
	return Node{Data: bytes.Clone(n.data), ACL: slices.Clone(n.acl), Stat: n.stat()}
}

// Node returns a copy of one znode; ok is false if it does not exist.
func (s *Server) Node(path string) (n Node, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nd := s.leader.tree.nodes[path]; nd != nil {
		return nd.export(), true
	}
	return Node{}, false
}

// Children returns the sorted names of a znode's children, nil if it does not exist.
func (s *Server) Children(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.leader.tree.nodes[path]; n != nil {
		return n.list()
	}
	return nil
}

// Requests returns how many requests of each type have been carried out or answered; those lost to
// a fault do not count. fault.OpConnect counts the handshakes.
func (s *Server) Requests() map[fault.Op]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.requests)
}

// Notifications returns how many events have been sent to clients, or would have been but for a
// fault.
func (s *Server) Notifications() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notified
}

// Connections returns how many connections are open, those without a session included.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.members {
		n += len(m.conns)
	}
	return n
}

// Zxid returns the zxid of the last transaction.
func (s *Server) Zxid() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.zxid
}
