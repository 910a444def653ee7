package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
)

// State says how a session stands.
type State int

const (
	// Connecting: no server has answered yet; there is no session.
	Connecting State = iota
	// Connected: requests travel.
	Connected
	// Disconnected: no connection; the session may live on, and is in doubt. Requests wait for the next connection.
	Disconnected
	// Over: the session has ended for good; Err says why.
	Over
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Connecting:
		return "connecting"
	case Connected:
		return "connected"
	case Disconnected:
		return "disconnected"
	case Over:
		return "over"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Session is one ZooKeeper session: it survives the loss of connections and servers, and ends once, for good. Its
// methods may be called concurrently.
type Session struct {
	cfg        config
	clock      clock
	deadline   *deadline // when the session is over; moves with the lease
	hosts      *hosts
	watches    *watches
	ephemerals *ephemerals
	notes      *notifier // nil when nobody listens

	ctx context.Context // ends with the session; its cause is Err
	cut context.CancelCauseFunc

	ended atomic.Bool // shutdown has begun

	conn    *zk.Conn
	drained chan struct{} // closed when the driver's loop has ended

	bg     sync.WaitGroup // keeper, links and Go
	joined chan struct{}  // closed when everything has been joined
	kick   chan struct{}  // wakes the keeper; capacity 1

	sizes   replySizes
	looking chan struct{} // a batch of StatsBelow or ReadBelow is on its way; capacity 1

	mu        sync.Mutex // guards what follows
	state     State      // Over is the context's to say: see State
	id        int64
	granted   time.Duration // the timeout, by the latest handshake
	lease     lease
	zxid      int64 // the latest that any reply showed
	unseen    bool  // a notification has told of something later, and no reply since
	link      *link // the one that carries requests; nil while Disconnected
	dialled   *link // the latest, perhaps still shaking hands
	ready     chan struct{}
	upSince   time.Time
	held      int       // Retentions that have not been released
	heldSince time.Time // since when there is one
	retained  []*Retention
	turn      int           // of retained: whose znode the next heartbeat checks
	asked     time.Time     // when the latest request through the leader that has been acknowledged was sent
	beaten    time.Time     // when the latest heartbeat was queued on this link
	shook     time.Duration // by the latest handshake
	took      time.Duration // by the latest answer through the leader
	stalls    int           // connections given up for silence since the last prompt answer through the leader
}

// Open opens a session with the ensemble of the connect string ("zk1:2181,zk2:2181/chroot") and waits for its first
// connection. The session outlives ctx, which bounds this call only; Close ends it.
//
// When it returns an error nothing is left behind: at worst a session without znodes, which the ensemble ends after
// its timeout. A connect string, path or Config that can't work is refused before any I/O (ErrConfig, ErrPath). When
// ctx ends first, the error matches ctx's and says which servers were tried and what each answered. ErrAuth: the
// ensemble refused the credentials.
func Open(ctx context.Context, connect string, conf Config) (*Session, error) {
	s, err := Start(connect, conf)
	if err != nil {
		return nil, err
	}
	if err := s.Established(ctx); err != nil {
		s.end(ErrClosed) // ctx is over
		return nil, fmt.Errorf("session: open %s: %w", connect, err)
	}
	return s, nil
}

// Start is Open that does not wait: the session connects in the background, and operations on it wait for that. An
// error is of the connect string or of conf; no I/O has been done.
func Start(connect string, conf Config) (*Session, error) {
	cfg, err := conf.check(connect)
	if err != nil {
		return nil, err
	}
	s := newSession(cfg)
	if cfg.onState != nil || cfg.log != nil {
		s.notes = newNotifier(cfg.tell)
	}
	if err := s.connectDriver(); err != nil {
		s.cut(err)
		s.notes.close()
		return nil, err
	}
	s.bg.Go(s.keep)
	return s, nil
}

// newSession returns a session that does nothing yet.
func newSession(cfg config) *Session {
	s := &Session{cfg: cfg, joined: make(chan struct{}), drained: make(chan struct{}), kick: make(chan struct{}, 1),
		looking: make(chan struct{}, 1), ready: make(chan struct{})}
	s.ctx, s.cut = context.WithCancelCause(context.Background())
	s.deadline = newDeadline(s.watchLease)
	s.hosts = newHosts(s.ctx, &s.cfg, s.stake)
	s.watches = newWatches(s)
	s.ephemerals = newEphemerals(cfg.room, len(cfg.chroot))
	return s
}

// Established waits for the session's first connection, as long as ctx and the session last. Nil: ID and Timeout are
// the ensemble's; the session may be Disconnected again.
func (s *Session) Established(ctx context.Context) error {
	if s.State() == Disconnected {
		return nil
	}
	_, err := s.await(ctx)
	return err
}

// ID returns the session's id.
func (s *Session) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Timeout returns the session timeout that the ensemble granted.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.granted == 0 {
		return s.cfg.timeout
	}
	return s.granted
}

// SafeUntil returns the instant before which the ensemble can't have ended the session by itself, as far as has been
// confirmed through its leader; local clock. While a lock is held it moves on with every heartbeat; without, it stands
// still when nothing is written, and may be past. A session that was closed by force ends earlier. It moves back only when
// a server that was asked to take the session over has not answered: it may have granted less.
func (s *Session) SafeUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.local(s.lease.safeUntil())
}

// State returns how the session stands: Over from the moment in which Err is not nil.
func (s *Session) State() State {
	if s.Err() != nil {
		return Over
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Server returns the address of the server that the session is connected to, or "" while it is not.
func (s *Session) Server() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err() != nil || s.state != Connected || s.link == nil {
		return ""
	}
	return s.link.server
}

// Done is closed when the session has ended, or may have: when the ensemble said so, when its lease is over, or when
// it was closed.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Err returns nil while the session lasts, and then why it ended: ErrExpired, ErrLeaseOver, ErrAuth or ErrClosed.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Context returns a context that ends with the session; its cause is Err.
func (s *Session) Context() context.Context { return s.ctx }

// Close ends the session, and with it its ephemeral znodes: at once when a server is connected, else when the ensemble
// expires it. It returns when everything that the session had running has ended, after about 2 s at the latest.
// It may be called more than once, and always returns nil.
func (s *Session) Close() error {
	s.end(ErrClosed)
	<-s.joined
	return nil
}

// Abandon is Close that does not wait: what the session had running ends by itself, within some seconds. It is for the
// packages of this module alone.
func (s *Session) Abandon(trusted.Caller) { s.end(ErrClosed) }

// Go runs fn in a goroutine that belongs to the session: ctx ends with the session, and Close joins it. It returns
// false, and does not run fn, when the session is over.
func (s *Session) Go(fn func(ctx context.Context)) bool {
	return s.spawn(func() { fn(s.ctx) })
}

func (s *Session) spawn(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err() != nil { // from here shutdown may be waiting for bg
		return false
	}
	s.bg.Go(fn)
	return true
}

// end ends the session, for the first cause that comes. Its context ends first of all, without a mutex; everything else
// follows in a goroutine of its own.
func (s *Session) end(cause error) {
	s.cut(cause)
	if s.ended.CompareAndSwap(false, true) {
		go s.shutdown()
	}
}

// shutdown closes the driver, gently and then by force, and joins everything. Close waits for it.
func (s *Session) shutdown() {
	defer close(s.joined)
	s.deadline.timer.Stop()
	s.mu.Lock() // whoever spawns from here on finds the session over
	link, last := s.link, s.dialled
	s.notes.add(Change{State: Over, ID: s.id, Err: s.Err()})
	s.mu.Unlock()
	// Only who was asked to asks the server to end the session. What was lost may still be held as far as others were
	// promised by SafeUntil: nothing may free it before, so the connection is cut and the session runs out.
	asked := errors.Is(s.Err(), ErrClosed)
	if !asked {
		cutOff(s.Err(), link, last)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.conn.Close() // says so to the server, if the connection was not cut; gives up after a second or two
	}()
	if asked && link != nil {
		// The close is on its way. On a link whose replies do not arrive it may still reach the server.
		grace := time.NewTimer(min(time.Second, s.cfg.timeout/4))
		defer grace.Stop()
		select {
		case <-s.drained:
		case <-grace.C:
		}
	}
	s.mu.Lock()
	last = s.dialled
	s.mu.Unlock()
	cutOff(ErrClosed, last) // whatever the driver thinks: a socket left open would keep the session alive
	<-s.drained
	<-closed
	s.bg.Wait()
	s.notes.close()
}

// cutOff gives links up, of which there may be none.
func cutOff(why error, links ...*link) {
	for _, l := range links {
		if l != nil {
			l.fail(why)
		}
	}
}

// await returns the link that carries requests, and waits for one as long as ctx and the session last.
func (s *Session) await(ctx context.Context) (*link, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, Waited(ctx, s.why())
		}
		s.mu.Lock()
		l, ready := s.link, s.ready
		s.mu.Unlock()
		if err := s.Err(); err != nil {
			return nil, err
		}
		if l != nil {
			return l, nil
		}
		select {
		case <-ready:
		case <-s.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// why says what a request waits for that has not been sent.
func (s *Session) why() error {
	s.mu.Lock()
	connected := s.link != nil
	s.mu.Unlock()
	if connected {
		return errors.New("about to send")
	}
	return fmt.Errorf("waiting for a connection: %w", s.hosts.report())
}
