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
	link         link          // to the leader; the leader's own is always linked
	healed       chan struct{} // closed when link becomes linked again
	down         bool          // no connections, and new ones are refused
	minTimeout   time.Duration
	maxTimeout   time.Duration
	conns        map[*conn]struct{} // the connections of its clients
	dataWatches  *watchTable
	childWatches *watchTable
}

// link says whether a member reaches the leader. CutOff and Depose lead away from linked, Heal back
// to it. A member that is cut off may still be deposed, but not the other way round.
type link uint8

const (
	linked  link = iota
	cut          // what needs the leader waits: writes, syncs and handshakes
	deposed      // cut, and taking itself for the leader: it answers syncs by itself
)

// newMember returns a member that is linked to the leader. Its replica is t, which nothing else may
// use.
func newMember(s *Server, t *tree) *Member {
	return &Member{
		s:            s,
		tree:         t,
		conns:        map[*conn]struct{}{},
		minTimeout:   s.opt.minTimeout,
		maxTimeout:   s.opt.maxTimeout,
		dataWatches:  newWatchTable(s.opt.dialect),
		childWatches: newWatchTable(s.opt.dialect),
	}
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
	wasStopped := s.clockStoppedLocked()
	err := s.addMemberLocked(m)
	s.restartClockLocked(wasStopped)
	return m, err
}

// addMemberLocked gives a member its number and address and makes it part of the ensemble. The
// error is that of listening.
func (s *Server) addMemberLocked(m *Member) error {
	m.number = len(s.members)
	if s.opt.noListener {
		// Nothing listens there, but it parses as an address and needs no name server.
		m.addr = fmt.Sprintf("127.0.0.1:%d", 2181+m.number)
	} else if err := m.listen(); err != nil {
		return err
	}
	s.members = append(s.members, m)
	return nil
}

// listen begins to accept connections, the leader at the address of WithAddr, if there is one, and
// any other member at a free port.
func (m *Member) listen() error {
	addr := "127.0.0.1:0"
	if m.number == 0 && m.s.opt.addr != "" {
		addr = m.s.opt.addr
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("zktest: %w", err) // err begins with "listen tcp"
	}
	m.listener = l
	m.addr = l.Addr().String()
	m.s.wg.Add(1)
	go m.accept()
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
	if !m.admitLocked() {
		return nil, &net.OpError{Op: "dial", Net: "zktest", Err: errRefused}
	}
	// The caller's goroutine makes the pipe's channels, so they belong to the caller's bubble.
	client, server := newPipe(m.addr)
	m.s.serveLocked(m, server)
	return client, nil
}

var errRefused = errors.New("connection refused")

// accept is the goroutine of a member's listener. It ends when Close closes the listener.
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
		m.serveOrReset(nc)
	}
}

// serveOrReset serves a connection that the listener has accepted, or ends it at once.
func (m *Member) serveOrReset(nc net.Conn) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if !m.admitLocked() {
		reset(nc)
		return
	}
	if m.s.opt.tls != nil {
		nc = tls.Server(nc, m.s.opt.tls) // the handshake happens with the first read
	}
	m.s.serveLocked(m, nc)
}

// admitLocked decides whether a new connection is served. It counts the connection for the faults
// that refuse some.
func (m *Member) admitLocked() bool {
	return !m.s.closed && !m.down && !m.s.refuseLocked(m)
}

// reset ends a connection with a TCP reset, which is as close to "connection refused" as an open
// listener can get.
func reset(nc net.Conn) {
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = nc.Close()
}

// catchUpLocked applies pending transactions until only keep of them are left. It returns the stats
// that the last of them left behind, one for each mutation. A member that is cut off applies
// nothing.
func (m *Member) catchUpLocked(keep int) []Stat {
	if m.link != linked {
		return nil
	}
	var stats []Stat
	for len(m.pending) > keep {
		x := m.pending[0]
		m.pending = m.pending[1:]
		stats = m.applyLocked(x, stats[:0])
	}
	return stats
}

// applyLocked applies one transaction to the member's replica and fires its watches. It appends the
// stats that the mutations left behind to stats.
func (m *Member) applyLocked(x *txn, stats []Stat) []Stat {
	for i := range x.muts {
		stats = append(stats, m.tree.apply(&x.muts[i], x, m.eventLocked))
	}
	m.tree.zxid = max(m.tree.zxid, x.zxid)
	if x.ended != 0 {
		m.finishSessionLocked(x.ended)
	}
	return stats
}

// finishSessionLocked ends the connections of a session that has ended, when their outboxes have
// been sent. A connection that is closing already ends by itself.
func (m *Member) finishSessionLocked(id int64) {
	for c := range m.conns {
		if c.session == id && c.phase == serving {
			c.finishLocked()
		}
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
	m.cutOffLocked()
}

// cutOffLocked is CutOff.
func (m *Member) cutOffLocked() {
	if m == m.s.leader || m.link != linked {
		return
	}
	m.link = cut
	m.healed = make(chan struct{})
}

// Depose is CutOff for a member in the role of a leader that has lost its followers: it answers
// syncs too, by itself, as a real one does until it notices. The zktest leader still orders the
// others' writes, and for it the call does nothing.
func (m *Member) Depose() {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.cutOffLocked()
	if m.link == cut {
		m.link = deposed
	}
}

// Heal ends CutOff and Depose: the member catches up, drops the clients whose sessions are over,
// and carries out the requests that waited.
func (m *Member) Heal() {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.link == linked {
		return
	}
	m.link = linked
	close(m.healed)
	m.catchUpLocked(m.lag)
	m.s.changedLocked()
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
	wasStopped := m.s.clockStoppedLocked()
	m.down = m.s.failure != nil
	m.s.restartClockLocked(wasStopped)
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
