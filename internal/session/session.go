package session

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/clock"
	"github.com/zklock/locker/internal/session/internal/dial"
	"github.com/zklock/locker/internal/session/internal/driver"
	"github.com/zklock/locker/internal/session/internal/ephemeral"
	"github.com/zklock/locker/internal/session/internal/lease"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/watch"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Session is one ZooKeeper session: it survives the loss of connections and servers, and ends once,
// for good. Its methods may be called concurrently.
type Session struct {
	cfg        config
	clock      clock.Clock
	deadline   *lease.Deadline // the end of the session; moves with the lease
	dialer     *dial.Dialer
	driver     *driver.Driver
	watches    *watch.Table
	ephemerals *ephemeral.Count
	changes    *changes

	ctx context.Context // ends with the session; its cause is Err
	// end ends the session, for the first cause that comes. It takes no mutex. shutdown, which then
	// runs in a goroutine of its own, does the rest.
	end context.CancelCauseFunc

	joined chan struct{}  // closed when everything has been joined
	bg     sync.WaitGroup // conns, their ends, changes.run, callbacks and Go

	// full while a batch of StatsBelow or ReadBelow is on its way; capacity 1
	readingMany chan struct{}

	common  link.Common      // of its conns
	numbers pipeline.Numbers // of its requests

	cut chan struct{} // closed when the session has ended and has no connection any more

	toldKey sync.Once // calls Config's Granted

	attaching sync.Once // sets attached, which locks use
	attached  any

	mu       sync.Mutex             // guards what follows
	state    State                  // never Over: see State
	id       int64                  // 0 before the first handshake was answered
	password [wire.PasswordLen]byte // with which a connection asks for the session
	granted  time.Duration          // the timeout, by the latest handshake
	lease    *lease.Keeper
	closed   bool          // a server has answered our close, and so has ended the session
	zxid     int64         // the latest seen, also in notifications; see watch.Table.Answered
	unseen   bool          // a notification without a zxid has come, and no reply with a zxid since
	conn     *connection   // carries requests; nil unless Connected
	latest   *connection   // the latest dialled, perhaps still shaking hands
	ready    chan struct{} // closed while conn is not nil; another one after each disconnection
	toCheck  list.List     // of the *Retentions whose znodes heartbeats check, the next one first
	backoff  backoff
}

// Open opens a session with the ensemble of the connect string ("zk1:2181,zk2:2181/chroot") and
// waits for its first connection. The session outlives ctx, which bounds this call only; Close ends
// it.
//
// After an error nothing is left but, at worst, a session without znodes, which the ensemble ends
// after its timeout. A connect string, path or Config that can't work is refused before any I/O
// (ErrConfig, ErrPath). If ctx ends first, the error matches ctx's and says what each server that
// was tried answered. ErrAuth: the ensemble refused the credentials.
func Open(ctx context.Context, connect string, conf Config) (*Session, error) {
	s, err := Start(connect, conf)
	if err != nil {
		return nil, err
	}
	if err := s.Established(ctx); err != nil {
		s.end(failure.ErrClosed) // ctx is over
		return nil, fmt.Errorf("session: open %s: %w", connect, err)
	}
	return s, nil
}

// Start is Open without waiting: the session connects in the background, and its operations wait
// for that. An error is about the connect string or conf; no I/O was done.
func Start(connect string, conf Config) (*Session, error) {
	cfg, err := conf.check(connect)
	if err != nil {
		return nil, err
	}
	s := newSession(cfg)
	if s.changes.wanted() {
		s.bg.Go(s.changes.run)
	}
	s.driver.Start()
	context.AfterFunc(s.ctx, s.shutdown) // which may run at once
	return s, nil
}

func newSession(cfg config) *Session {
	s := &Session{cfg: cfg, changes: newChanges(&cfg), joined: make(chan struct{}),
		cut: make(chan struct{}), readingMany: make(chan struct{}, 1), ready: make(chan struct{})}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.deadline = lease.NewDeadline(s.ctx, &s.clock, func() { s.end(failure.ErrLeaseExpired) })
	s.lease = lease.NewKeeper(cfg.Timeout, cfg.TickTime, &s.clock, s.deadline)
	s.common = link.Common{
		Life:          s.ctx,
		Joined:        &s.bg,
		Clock:         &s.clock,
		Numbers:       &s.numbers,
		JuteMaxBuffer: cfg.JuteMaxBuffer,
		Auth:          cfg.Auth,
		SASL:          cfg.SASL,
	}
	s.dialer = dial.New(s.ctx, cfg.dialing(), func() (left time.Duration, retained bool) {
		now := s.clock.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lease.LeftIfRetained(now), s.lease.Retained()
	})
	s.changes.report = s.dialer.Report
	s.watches = watch.New(cfg.JuteMaxBuffer, s.spawn, func(path string) {
		s.ephemerals.Gone(s.cfg.strip(path), math.MaxInt64, false)
	})
	s.ephemerals = ephemeral.New(cfg.JuteMaxBuffer, len(cfg.chroot))
	s.driver = driver.New(cfg.Timeout, s.dial, func() bool { return s.Err() != nil })
	return s
}

// These are all moves from one state to another. Config.OnState is called for each.
//
//	Connecting, Disconnected  → Connected     connectedLocked, by Up: the conn carries the requests
//	                                          of all calls
//	Connected                 → Disconnected  disconnectedLocked, by Down: the conn has failed. By
//	                                          Up, if the Down of the conn before has not run yet
//	any                       → Over          end: for the first cause that comes, in the context
//	                                          and without a mutex

func (s *Session) connectedLocked(c *connection) {
	s.state = Connected
	s.conn = c
	c.upAt = s.clock.Stamp()
	close(s.ready)
	s.changes.add(Change{State: Connected, ID: s.id, Addr: c.Server, Timeout: s.granted})
}

func (s *Session) disconnectedLocked(err error) {
	server := s.conn.Server
	s.state = Disconnected
	s.conn = nil
	s.ready = make(chan struct{})
	if s.Err() == nil {
		s.changes.add(Change{State: Disconnected, ID: s.id, Addr: server, Err: err})
	}
}

// State returns Over as soon as Err is not nil.
func (s *Session) State() State {
	if s.Err() != nil {
		return Over
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Attached returns what the locks of this session have in common: what the create of the first call
// returned.
func (s *Session) Attached(create func() any) any {
	s.attaching.Do(func() { s.attached = create() })
	return s.attached
}

// ID returns the session's id.
func (s *Session) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// key returns what the session can be taken over with.
func (s *Session) key() Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Key{s.id, s.password}
}

// Timeout returns the session timeout that the ensemble granted.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.granted, s.cfg.Timeout)
}

// TickTime returns the servers' tick that the lease allows for: Config's or, without one, half of
// the least session timeout that a server grants; 0 before that is known.
func (s *Session) TickTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.Tick()
}

// SafeUntil returns the instant, on the local clock, before which the ensemble can't have ended the
// session by itself, as far as its leader has confirmed. While a lock is held it advances with
// every heartbeat; otherwise only with writes, and may be past. A session that is closed by force
// ends earlier. It moves back only if a server that was asked to take the session over has not
// answered, since that server may have granted a shorter timeout.
func (s *Session) SafeUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.Local(s.lease.SafeUntil())
}

// Promised returns the latest instant that SafeUntil has ever returned, or could have.
func (s *Session) Promised() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.Local(s.lease.Promised())
}

// Server returns the address of the connected server, or "" if there is none.
func (s *Session) Server() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err() != nil || s.conn == nil {
		return ""
	}
	return s.conn.Server
}

// Log returns Config's Logger, or nil if there is none.
func (s *Session) Log() *slog.Logger { return s.cfg.Logger }

// Done is closed when the session has ended, or may have: the ensemble said so, its lease has
// expired, or it was closed.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Err returns nil while the session lasts, then why it ended: ErrExpired, ErrLeaseExpired, ErrAuth
// or ErrClosed.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Alive checks the clock, and returns Err. So it does not depend on a timer to notice that the
// lease has expired, which may take a moment after the whole process was stopped. It takes no mutex
// and allocates nothing.
func (s *Session) Alive() error {
	if s.ctx.Err() == nil {
		if s.deadline.Left() > 0 {
			return nil
		}
		s.end(failure.ErrLeaseExpired)
	}
	return s.Err()
}

// Context returns a context that ends with the session; its cause is Err.
func (s *Session) Context() context.Context { return s.ctx }

// Close ends the session, and with it its ephemeral znodes: at once if a server is connected, else
// when the ensemble expires it. It returns when everything that the session had running has ended,
// after about 2 s at the latest. It may be called more than once, and always returns nil.
func (s *Session) Close() error {
	s.end(failure.ErrClosed)
	<-s.joined
	return nil
}

// Cut returns a channel that is closed when the session has ended, and has no connection any more.
// Hooks and goroutines of the session may still run.
func (s *Session) Cut() <-chan struct{} { return s.cut }

// Go runs fn in a goroutine of the session: ctx ends with it, and Close joins it. If the
// session is over, Go returns false and does not run fn.
func (s *Session) Go(fn func(ctx context.Context)) bool {
	return s.spawn(func() { fn(s.ctx) })
}

func (s *Session) spawn(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spawnLocked(fn)
}

func (s *Session) spawnLocked(fn func()) bool {
	if s.Err() != nil { // shutdown may be waiting for bg
		return false
	}
	s.bg.Go(fn)
	return true
}

// shutdown makes the driver close the connection, then closes it by force, and joins everything.
// Close waits for it.
func (s *Session) shutdown() {
	defer close(s.joined)
	s.deadline.Stop()
	s.mu.Lock() // from here on spawn and dialled find the session over
	latest, connected := s.latest, s.conn != nil
	s.changes.add(Change{State: Over, ID: s.id, Err: s.Err()})
	s.mu.Unlock()
	// The server is asked to end the session only if our caller has called Close. A lost session
	// may still be alive until SafeUntil, and nothing may free its locks before. So its connection
	// is cut, and the session runs out, or CloseGivenUp closes it.
	byCaller := errors.Is(s.Err(), failure.ErrClosed)
	if !byCaller && latest != nil {
		latest.Fail(s.Err())
	}
	stopped := s.driver.Stop()
	if byCaller && connected {
		// The driver is sending the close, in Stop's goroutine, and waits a second for the reply,
		// which connection.noteClosed notes. A server that carries the close out may hang up
		// without one; then CloseGivenUp asks again. The timer bounds our wait; what still runs
		// then ends when the connection is closed below.
		select {
		case <-stopped:
		case <-time.After(min(time.Second, s.cfg.Timeout/4)):
		}
	}
	if latest != nil { // whatever the driver thinks: an open socket would keep the session alive
		latest.Fail(failure.ErrClosed)
	}
	close(s.cut)
	<-stopped
	s.dialer.Wait()
	s.bg.Wait()
}

// dialled notes that c is about to shake hands. It returns false if the session is over: then
// shutdown does not know c, and the caller fails it.
func (s *Session) dialled(c *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err() != nil {
		return false
	}
	s.latest = c
	return true
}

// dial dials, for the driver: it returns the socket, with a deadline for the handshake, and its
// conn.
func (s *Session) dial() (net.Conn, *link.Conn, error) {
	netConn, server, limit, err := s.dialer.Connect(s.findTick)
	if err != nil {
		return nil, nil, err
	}
	c := s.newConnection(netConn, server, limit)
	if !s.dialled(c) {
		c.Fail(dial.ErrStopped)
		return nil, nil, dial.ErrStopped
	}
	return netConn, c.Conn, nil
}
