package session

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/internal/dial"
	"github.com/zklock/locker/internal/session/internal/lease"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/watch"
	"github.com/zklock/locker/internal/session/internal/wire"
	public "github.com/zklock/locker/session"
)

// What the tests of this package use of its unexported code; they have no other access to it.

// MaxFrame bounds a frame from the server.
const MaxFrame = wire.MaxFrame

// Burst is how many requests of one call are waited for together.
const Burst = link.Together

// WatchedPaths returns the number of paths in the watch table, without those that the next connection will drop.
func (s *Session) WatchedPaths() int { return s.watches.Len() }

// QueuedCalls returns how many requests of the present link have not been written yet, and how many have no reply.
func (s *Session) QueuedCalls() (queued, pending int) {
	s.mu.Lock()
	l := s.conn
	s.mu.Unlock()
	if l == nil {
		return 0, 0
	}
	queued, pending, _ = l.seam().Waiting()
	return queued, pending
}

func (c *connection) seam() link.Seam { return link.SeamOf(c.Conn) }

// Transact is Multi that also returns the transaction's zxid.
func (s *Session) Transact(ctx context.Context, ops ...Op) (Transaction, error) {
	return one(ctx, s, s.multi(ops))
}

// Fired is sent to, once, when the watch has fired.
func Fired(w *watch.Watch) <-chan struct{} {
	fired := make(chan struct{}, 1)
	w.Wake(fired)
	return fired
}

// Attempt is a bound that follows from a timeout.
func Attempt(timeout time.Duration) time.Duration { return dial.Attempt(timeout) }

// Patience is the first patience of a session that nothing retains.
func Patience(timeout time.Duration) time.Duration {
	return lease.NewKeeper(timeout, 0, nil, nil).Patience()
}

// Rig is a session without a driver, and with one conn, on which a test plays the server: it sees every frame that the conn
// would write, and supplies what the conn would read.
type Rig struct {
	*Session
	c *connection
}

// NewRig returns a connected session that has done no I/O, and sends no heartbeats by itself.
func NewRig() *Rig {
	refuse := func(string, string, time.Duration) (net.Conn, error) { return nil, errors.New("no server") }
	cfg, err := Config{TickTime: 2 * time.Second, Logger: slog.New(slog.DiscardHandler), Dial: refuse}.check("rig:1/app")
	if err != nil {
		panic(err)
	}
	s := newSession(cfg)
	s.id, s.granted = 7, cfg.Timeout
	now := s.clock.Stamp()
	s.lease.Begin(now, cfg.Timeout, true)
	s.lease.Ack(now, now, true)
	r := &Rig{Session: s}
	r.connect(sink{}, "rig:1")
	r.c.Up()
	return r
}

// connect gives the rig a conn that has done its handshake.
func (r *Rig) connect(netConn net.Conn, server string) {
	r.c = r.newConnection(netConn, server, time.Second)
	r.c.seam().Establish()
}

// Stop stops the rig's clocks.
func (r *Rig) Stop() {
	r.deadline.Stop()
}

// Woken is signalled when requests have been queued, and when the link has failed.
func (r *Rig) Woken() <-chan struct{} { return r.c.seam().Woken() }

// Failed reports whether the link has been given up.
func (r *Rig) Failed() bool { return r.c.Failure() != nil }

// Answer answers each queued request with code and body.
func (r *Rig) Answer(code int32, body []byte) error {
	if err := r.Send(); err != nil {
		return err
	}
	for {
		_, n, xid := r.c.seam().Waiting()
		if n == 0 {
			return nil
		}
		b := binary.BigEndian.AppendUint32(nil, uint32(xid))
		b = binary.BigEndian.AppendUint64(b, 99)
		b = binary.BigEndian.AppendUint32(b, uint32(code))
		if err := r.c.seam().Handle(append(b, body...), len(b)+len(body), r.clock.Now()); err != nil {
			r.c.Fail(err)
			return err
		}
	}
}

// Notify supplies a notification, with the path as the server knows it.
func (r *Rig) Notify(typ zk.EventType, path string) error {
	b := binary.BigEndian.AppendUint32(nil, 0xffffffff)
	b = binary.BigEndian.AppendUint64(b, 0xffffffffffffffff)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, byte(typ), 0, 0, 0, 3)
	body := wire.AppendString(b, path)
	return r.c.seam().Handle(body, len(body), r.clock.Now())
}

// Send writes the queued requests.
func (r *Rig) Send() error { return r.c.seam().Flush() }

// Beat queues a heartbeat on the link.
func (r *Rig) Beat() { r.c.Enqueue(link.Ping()) }

// NextBeat does what the heartbeat has to do now, and returns the time until it has something to do again.
func (r *Rig) NextBeat() time.Duration { return r.c.Beat() }

// Break makes the link fail.
func (r *Rig) Break(err error) { r.c.Fail(err) }

// BreakBehind makes the link fail for err as far as its first n requests without a reply: it has not come to the others yet.
func (r *Rig) BreakBehind(n int, err error) {
	for range n {
		r.c.seam().FailNext(err)
	}
}

// Take takes the first request without a reply, as the reader does, and returns its hook.
func (r *Rig) Take() func(code int32) {
	return r.c.seam().Take().Hook
}

// Reconnect gives the session another conn.
func (r *Rig) Reconnect() {
	r.connect(sink{}, "rig:2")
	r.c.Up()
}

// RefuseAndBreak makes the reader find in the first reply that the session is over, and makes the conn fail before the reader has
// handled that.
func (r *Rig) RefuseAndBreak(err error) {
	r.driver.Start() // which the end of the session stops
	context.AfterFunc(r.ctx, r.shutdown)
	r.mu.Lock() // both need it
	_, n, xid := r.c.seam().Waiting()
	b := binary.BigEndian.AppendUint32(nil, uint32(xid))
	b = binary.BigEndian.AppendUint64(b, 99)
	code := int32(wire.CodeSessionExpired)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	var both sync.WaitGroup
	both.Go(func() {
		r.c.Fail(r.c.seam().Handle(b, len(b), r.clock.Stamp()))
	})
	r.until(func() bool { _, now, _ := r.c.seam().Waiting(); return now < n })
	both.Go(func() { r.c.Fail(err) })
	r.until(func() bool { return r.c.Failure() != nil })
	r.mu.Unlock()
	both.Wait()
}

// GarbleAndBreak has the reader find a reply to no request, and the conn fail for err before the reader has given it up.
func (r *Rig) GarbleAndBreak(err error) {
	if garbled := r.c.seam().Handle(make([]byte, wire.ReplyHeaderLen), wire.ReplyHeaderLen, r.clock.Now()); garbled == nil {
		panic("the rig's link takes a reply to no request")
	}
	r.c.Fail(err)
}

// until waits for cond.
func (r *Rig) until(cond func() bool) {
	began := time.Now()
	for done := false; !done; runtime.Gosched() {
		done = cond()
		if time.Since(began) > time.Minute {
			panic("the rig's link does not get there")
		}
	}
}

// ReadAll reads a whole stream of frames as a conn after its handshake does, until its end or its first bad frame, and
// returns how many bytes the driver has seen.
func ReadAll(stream io.Reader) (forwarded int, err error) {
	r := NewRig()
	defer r.Stop()
	r.connect(source{stream}, "rig:1")
	for {
		frame, err := r.c.Receive()
		forwarded += len(frame)
		if err != nil {
			return forwarded, err
		}
	}
}

// sink is a connection that accepts all writes and sends nothing.
type sink struct{ net.Conn }

func (sink) Write(b []byte) (int, error)      { return len(b), nil }
func (sink) SetDeadline(time.Time) error      { return nil }
func (sink) SetWriteDeadline(time.Time) error { return nil }
func (sink) Close() error                     { return nil }

// source is a connection that sends what a reader contains.
type source struct{ r io.Reader }

func (s source) Read(b []byte) (int, error)     { return s.r.Read(b) }
func (source) Write(b []byte) (int, error)      { return len(b), nil }
func (source) SetDeadline(time.Time) error      { return nil }
func (source) SetReadDeadline(time.Time) error  { return nil }
func (source) SetWriteDeadline(time.Time) error { return nil }
func (source) Close() error                     { return nil }
func (source) LocalAddr() net.Addr              { return nil }
func (source) RemoteAddr() net.Addr             { return nil }

// HoldMutexes locks every mutex of the session and its connection, and returns a function that unlocks them.
func (s *Session) HoldMutexes() (release func()) {
	all := []sync.Locker{s.watches.Locker(), &s.mu, s.dialer.Locker()}
	for _, m := range all {
		m.Lock()
	}
	if s.conn != nil {
		l := s.conn.seam().Locker()
		l.Lock()
		all = append(all, l)
	}
	return func() {
		for _, m := range all {
			m.Unlock()
		}
	}
}

// StepClock advances the session's clock by d, as a sleep of the machine does that the system has not reported yet.
func (s *Session) StepClock(d time.Duration) { s.clock.Shift(d, 0) }

// WakeUp makes the session's clock what it was before a sleep of d that has just ended.
func (s *Session) WakeUp(d time.Duration) {
	s.clock.Shift(-d, -d)
}

// DigestMD5 is the public package's.
var DigestMD5 = public.DigestMD5
