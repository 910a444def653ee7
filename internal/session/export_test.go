package session

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/zklock/locker/internal/session/internal/dial"
	"github.com/zklock/locker/internal/session/internal/lease"
	"github.com/zklock/locker/internal/session/internal/watch"
	"github.com/zklock/locker/internal/session/internal/wire"
	public "github.com/zklock/locker/session"
)

// What the tests of this package use of its unexported code; they have no other access to it.

// MaxFrame bounds a frame from the server.
const MaxFrame = wire.MaxFrame

// MayHaveMade reports whether a create of want can have made path.
func MayHaveMade(want, path string) bool { return mayHaveMade(want, path) }

// WatchedPaths returns the number of paths in the watch table, without those that the next
// connection will drop.
func (s *Session) WatchedPaths() int { return s.watches.Len() }

// QueuedCalls returns how many requests of the present connection have not been written yet, and
// how many have no reply.
func (s *Session) QueuedCalls() (queued, pending int) {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil {
		return 0, 0
	}
	return c.Waiting()
}

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

// HoldMutexes locks every mutex of the session and its connection, and returns a function that
// unlocks them.
func (s *Session) HoldMutexes() (release func()) {
	all := []*sync.Mutex{mutexOf(s.watches), &s.mu, mutexOf(s.dialer)}
	for _, m := range all {
		m.Lock()
	}
	if s.conn != nil {
		m := mutexOf(s.conn.Conn)
		m.Lock()
		all = append(all, m)
	}
	return func() {
		for _, m := range all {
			m.Unlock()
		}
	}
}

// mutexOf returns the field mu of a struct of another package.
func mutexOf(owner any) *sync.Mutex {
	return (*sync.Mutex)(reflect.ValueOf(owner).Elem().FieldByName("mu").Addr().UnsafePointer())
}

// StepClock advances the session's clock by d, as a sleep of the machine does that the system has
// not reported yet.
func (s *Session) StepClock(d time.Duration) { s.clock.Shift(d, 0) }

// WakeUp makes the session's clock what it was before a sleep of d that has just ended.
func (s *Session) WakeUp(d time.Duration) {
	s.clock.Shift(-d, -d)
}

// DigestMD5 is the public package's.
var DigestMD5 = public.DigestMD5
