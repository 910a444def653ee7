package zklock

import (
	"context"
)

// Mutex is a lock that one holder in the whole fleet can have.
type Mutex struct{ lock }

// Mutex returns the mutex whose contenders queue below path, a znode that Lock makes when it is
// missing.
func (c *Client) Mutex(path string, opts ...LockOption) *Mutex {
	return &Mutex{c.newLock(&mutexKind, opts, path)}
}

// Lock waits its turn, and returns the hold and a context for the work under it, which ends with
// the hold and with ctx, whichever is first. Call Unlock when the work is done, even when ctx has
// ended. After an error the context is ctx.
//
//	ctx, hold, err := m.Lock(ctx)
//	…
//	defer hold.Unlock()
//	row, err := db.ExecContext(ctx, …)
//
// A deadline of ctx counts for the wait and the work: WithMaxWait bounds the wait alone. The wait
// survives disconnects and sessions that end: in a new session it queues again, at the end.
//
// Errors:
//   - ErrBusy: WithMaxWait's time is over.
//   - ctx's, with who is first in line.
//   - ErrUnreachable: no server answered before ctx ended, whose error matches too, or within
//     WithMaxWait's time.
//   - ErrDeadlock, ErrConflict: the caller holds this lock, or something else uses the path.
//   - ErrClosed, ErrPath, ErrInvalid, ErrAuth, or the driver's (zk.ErrNoAuth, …) when the ensemble
//     refuses a step.
func (m *Mutex) Lock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "lock", LockInfo{Kind: KindMutex})
}

// TryLock is Lock if no other contender holds the lock or waits for it, and ErrBusy otherwise,
// which costs reads only. It never waits for another contender. It waits for a server for half the
// session timeout, between 2 and 5 s, and then returns ErrUnreachable: whether the lock is free is
// not known. For the name of a holder it waits 0.3 s at most.
func (m *Mutex) TryLock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "try lock", LockInfo{Kind: KindMutex, Try: true})
}

// Do calls fn while it holds the lock. fn's context ends with ctx and with the hold, whichever is
// first. The lock is released after fn has returned or panicked, as by Hold.Unlock.
//
// The error is nil if fn has returned nil while the lock was held. Otherwise it is one of these:
//   - ErrNotRun: fn was not called. The rest of the error is Lock's.
//   - ErrLost, ErrClosed: fn was called, and the lock was lost before it returned, or, with
//     ErrNodeDeleted, perhaps just after. fn's own error, if it has one, is joined.
//   - Any other: fn's own, unchanged; the lock was held.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

// TryDo calls fn while it holds the lock, if no other contender holds the lock or waits. It returns
// whether fn was called.
//
// If fn was called, err is that of Do. If not:
//   - nil: another contender holds the lock or waits.
//   - ErrNotRun: TryLock failed for another reason. The rest of the error is TryLock's.
func (m *Mutex) TryDo(
	ctx context.Context, fn func(ctx context.Context) error,
) (ran bool, err error) {
	return tryDo(ctx, m.TryLock, fn)
}
