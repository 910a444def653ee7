package zktest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// An ensemble is one Server, which orders the writes and knows the sessions, and for each member a
// replica of the tree that applies the same transactions in the same order, now or later. A member
// that lags leaves some of them in its queue; a member that is cut off leaves all of them there,
// and requests that need the leader wait. Every member fires its own clients' watches from its own
// replica, so they lag as well.

// Member is one server of the simulated ensemble: an address of its own, its own connections and
// watches, and a replica of the tree. A Server has one, the leader; Follower adds more. Sessions
// live in all of them.
//
// All methods may be called at any time from any goroutine, and none blocks on a client.
type Member struct {
	s        *Server
	number   int
	addr     string
	listener net.Listener // nil with WithoutListener

	// guarded by s.mu
	tree         *tree
	pending      []*txn        // committed, not yet applied here
	lag          int           // how many pending transactions stay unapplied
	healed       chan struct{} // closed while connected to the leader
	deposed      bool          // of a member that is cut off: it answers syncs by itself
	down         bool
	minTimeout   time.Duration
	maxTimeout   time.Duration
	conns        map[*conn]struct{} // the connections of its clients
	dataWatches  *watchTable
	childWatches *watchTable
}

// newMember makes a member with a replica of its own.
func newMember(s *Server, t *tree) *Member {
	m := &Member{s: s, tree: t, conns: map[*conn]struct{}{}, healed: make(chan struct{}),
		minTimeout: s.opt.minTimeout, maxTimeout: s.opt.maxTimeout,
		dataWatches: newWatchTable(s.opt.dialect), childWatches: newWatchTable(s.opt.dialect)}
	close(m.healed)
	return m
}

// Follower adds a member that follows the leader at once and completely until Lag or CutOff say
// otherwise. Clients reach it at its Addr or through its Dial; the Server's own Dial also reaches
// it if asked for its Addr. It lives as long as the Server. The error is that of listening.
func (s *Server) Follower() (*Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	m := newMember(s, s.leader.tree.clone())
	m.down = s.failure != nil
	return m, s.addMemberLocked(m)
}

// addMemberLocked gives a member its address and makes it part of the ensemble.
func (s *Server) addMemberLocked(m *Member) error {
	m.number = len(s.members)
	if s.opt.noListener {
		// Nothing listens there, but it parses as an address and needs no name server.
		m.addr = fmt.Sprintf("127.0.0.1:%d", 2181+m.number)
	} else {
		addr := "127.0.0.1:0"
		if m.number == 0 && s.opt.addr != "" {
			addr = s.opt.addr
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("zktest: %w", err) // err begins with "listen tcp"
		}
		m.listener, m.addr = l, l.Addr().String()
		s.wg.Add(1)
		go m.accept()
	}
	s.members = append(s.members, m)
	return nil
}

// Leader returns the member that orders the writes: the one behind the Server's own Addr.
func (s *Server) Leader() *Member { return s.leader }

// Addr returns the member's address, "127.0.0.1:port".
func (m *Member) Addr() string { return m.addr }

// Dial connects to this member in memory; network, addr and timeout are ignored. See Server.Dial.
func (m *Member) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.s.closed || m.down || m.s.refusedLocked(m) {
		return nil, &net.OpError{Op: "dial", Net: "zktest", Err: errRefused}
	}
	// The caller's goroutine makes the pipe's channels, so they belong to the caller's bubble.
	client, server := newPipe(m.addr)
	m.s.serveLocked(m, server)
	return client, nil
}

var errRefused = errors.New("connection refused")

// accept owns the listener; it ends when Close closes it.
func (m *Member) accept() {
	defer m.s.wg.Done()
	for {
		nc, err := m.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				m.s.log.Error("zktest: accept", "err", err)
			}
			return
		}
		m.s.mu.Lock()
		if m.s.closed || m.down || m.s.refusedLocked(m) {
			// A reset is as close to "connection refused" as an open listener can get.
			if t, ok := nc.(*net.TCPConn); ok {
				_ = t.SetLinger(0)
			}
			_ = nc.Close()
		} else {
			if m.s.opt.tls != nil {
				nc = tls.Server(nc, m.s.opt.tls) // the handshake happens with the first read
			}
			m.s.serveLocked(m, nc)
		}
		m.s.mu.Unlock()
	}
}

// catchUpLocked applies pending transactions until only keep of them are left, and returns the
// stats of the last one applied. A member that is cut off applies nothing.
func (m *Member) catchUpLocked(keep int) []Stat {
	var stats []Stat
	if m.isCutLocked() {
		return nil
	}
	for len(m.pending) > keep {
		x := m.pending[0]
		m.pending = m.pending[1:]
		stats = stats[:0] // only those of the last one, the caller's own, are used
		for i := range x.muts {
			stats = append(stats, m.tree.apply(&x.muts[i], x, m.eventLocked))
		}
		m.tree.zxid = max(m.tree.zxid, x.zxid)
		if x.ended != 0 {
			m.closeSessionLocked(x.ended)
		}
	}
	return stats
}

// closeSessionLocked closes the connections of a session that has ended, after their queues have
// been sent.
func (m *Member) closeSessionLocked(id int64) {
	for c := range m.conns {
		if c.session == id && c.phase == serving {
			c.finishLocked()
		}
	}
}

// isCutLocked says whether the leader is out of reach.
func (m *Member) isCutLocked() bool {
	select {
	case <-m.healed:
		return false
	default:
		return true
	}
}

// LimitSessions sets the bounds of the session timeout that clients of this member can negotiate
// from now on, as if its configuration differed from the others'. It panics unless 0 < minimum ≤
// maximum.
func (m *Member) LimitSessions(minimum, maximum time.Duration) {
	if minimum <= 0 || maximum < minimum {
		panic(fmt.Sprintf("zktest: session timeouts from %v to %v", minimum, maximum))
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.minTimeout, m.maxTimeout = minimum, maximum
}

// Lag makes the member stay n transactions behind the leader from now on. It serves its clients'
// reads from that older state, and its watches fire that much later; a sync or a write through it
// brings it up to date for that moment. Lag(0) lets it catch up. For the leader the call does
// nothing.
func (m *Member) Lag(n int) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m == m.s.leader {
		return
	}
	m.lag = max(n, 0)
	m.catchUpLocked(m.lag)
	m.s.changedLocked()
}

// CutOff separates the member from the leader: it still answers pings and reads from its own state,
// but writes, syncs and handshakes wait, and the leader gets no signs of life of its clients, so
// their sessions expire by the leader's clock. It lasts until Heal. For a leader the call does
// nothing.
func (m *Member) CutOff() {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m != m.s.leader && !m.isCutLocked() {
		m.healed = make(chan struct{})
	}
}

// Depose is CutOff for a member in the role of a leader that has lost its followers: it answers
// syncs too, by itself, as a real one does until it notices. The zktest leader still orders the
// others' writes, and for it the call does nothing.
func (m *Member) Depose() {
	m.CutOff()
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.deposed = m.isCutLocked()
}

// Heal ends CutOff and Depose: the member catches up, drops the clients whose sessions are over,
// and carries out the requests that waited.
func (m *Member) Heal() {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.deposed = false
	if m.isCutLocked() {
		close(m.healed)
		m.catchUpLocked(m.lag)
		m.s.changedLocked()
	}
}

// Down drops the member's connections without another byte and refuses new ones until Up. As long
// as another member is up the ensemble's clock runs, and sessions expire unless their clients
// connect to that one. Once all are down the clock stops: see Server.StopClock.
func (m *Member) Down() {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.down = true
	m.killLocked()
	m.s.changedLocked()
}

// Up ends Down, unless the ensemble has failed.
func (m *Member) Up() {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	wasStill := m.s.stillLocked()
	m.down = m.s.failure != nil
	m.s.restartLocked(wasStill)
}

// DropConnections drops the member's connections without another byte. Sessions stay, and clients
// may come back.
func (m *Member) DropConnections() {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.killLocked()
	m.s.changedLocked()
}

// killLocked ends all of the member's connections, including those whose clients hung up while a
// fault held their requests.
func (m *Member) killLocked() {
	for _, c := range inOrder(m.s.conns) {
		if c.member == m {
			c.killLocked()
		}
	}
}

// Zxid returns the zxid of the last transaction this member has applied.
func (m *Member) Zxid() int64 {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.tree.zxid
}
