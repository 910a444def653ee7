package zklock

import (
	"context"

	"github.com/zklock/locker/recipe"
)

// Mutex is a lock that one holder in the whole ensemble can have. It is a description, and stores no ownership: that
// is in the Hold that Lock returns. Any number of Mutexes may stand for one path, and one may be used by any number of
// goroutines.
type Mutex struct{ b base }

// Mutex returns the mutex whose contenders queue below path, a znode that Lock makes when it is missing. It does no
// I/O; a path or option that can't work is reported by every call on the Mutex (ErrPath, ErrOption).
func (c *Client) Mutex(path string, opts ...LockOption) *Mutex {
	return &Mutex{c.shareable(path, opts)}
}

// Lock waits its turn and returns the hold. The wait survives disconnects and sessions that end: in a new session it
// queues again, at the end of the line.
//
// It blocks until the lock is held, ctx ends, the Client is closed, or WithWait's time is over. ctx bounds the waiting
// and not the hold. When ctx ends, the error matches ctx's and says what was being waited for; nothing is left in the
// line, as soon as the ensemble can be reached. Uncontended it costs two requests and the time of one.
//
// Errors: ErrBusy (WithWait), ErrDeadlock, ErrClosed, ErrPath, ErrOption, ErrConflict, session.ErrAuth, the driver's
// (zk.ErrNoAuth, …) when the ensemble refuses a step.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	return m.b.lock(ctx, m.request("lock", false))
}

// TryLock returns the hold if nobody else holds the lock or waits for it, and ErrBusy otherwise, which costs one read
// and no write. It waits for a connection, never for another contender. Other errors: as for Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	return m.b.acquire(ctx, m.request("try lock", true))
}

// Do calls fn while it holds the lock. fn's context ends with ctx and with the hold, whichever is first; the lock is
// released after fn has returned, also by a panic. It returns fn's error, the loss of the lock if it was lost before
// fn returned, and the release's failure, joined; or Lock's error, when fn was not called. The release waits for the
// ensemble even when ctx has ended, though not for longer than the session timeout: by then the lock goes with the session.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

func (m *Mutex) request(op string, try bool) request {
	return request{op: op, try: try, kind: "mutex", queue: m.b.queue(recipe.Lock), again: m.b.reenter}
}

// do calls fn while it has what lock returns.
func do(ctx context.Context, lock func(context.Context) (*Hold, error), fn func(context.Context) error) error {
	h, err := lock(ctx)
	if err != nil {
		return err
	}
	return h.do(ctx, fn)
}
