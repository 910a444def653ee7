package zklock

import "context"

// Mutex is a lock that one holder in the whole ensemble can have. It is a description, and stores no ownership: that is
// in the Hold that Lock returns. Any number of Mutexes may have the same path, and one Mutex may be used by any number of
// goroutines.
type Mutex struct{ lock }

// Mutex returns the mutex whose contenders queue below path, a znode that Lock makes when it is missing. It does no I/O;
// a path or option that can't work is reported by every call on the Mutex (ErrPath, ErrOption).
func (c *Client) Mutex(path string, opts ...LockOption) *Mutex {
	return &Mutex{c.newLock(nounMutex, opts, path)}
}

// Lock waits its turn and returns the hold. The wait survives disconnects and sessions that end: in a new session it
// queues again, at the end of the line.
//
// It blocks until the lock is held, ctx ends, the Client is closed, or WithWait's time is over. ctx bounds the waiting
// and not the hold. When ctx ends, the error matches ctx's and says what was being waited for: who is first in line, by the
// name of its znode until the wait has lasted for 0.3 s, and then by its owner, which costs a read. The deletion of the
// contender's znode has then been sent, as a rule, but not answered. It is sent later, in the background, if there is no
// connection, or one that takes nothing, if a lock delay was noted, or if ctx ended before the create's outcome was
// known: Client.Close has what that means for a process that exits. Uncontended a Lock costs two requests in one round
// trip.
//
// Errors: ErrBusy (WithWait), ErrDeadlock, ErrClosed, ErrPath, ErrOption, ErrConflict, session.ErrAuth, the driver's
// (zk.ErrNoAuth, …) when the ensemble refuses a step.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, request{op: "lock", kind: KindMutex})
}

// TryLock returns the hold if nobody else holds the lock or waits for it, and ErrBusy otherwise, which names the holder and
// costs a read and no write; two more reads, of 0.3 s at most, for the name of a holder that the client does not know yet.
// It waits for a connection, never for another contender. Other errors: as for Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, request{op: "try lock", try: true, kind: KindMutex})
}

// Do calls fn while it holds the lock. fn's context ends with ctx and with the hold, whichever is first; the lock is
// released after fn has returned, also by a panic.
//
// Nil: fn has returned nil while the lock was held. An error that matches ErrNotRun is Lock's: fn was not called. One
// that matches ErrLost, or ErrClosed, and not ErrNotRun: fn was called, and the lock was lost before it returned, or, if
// the cause is ErrNodeDeleted, perhaps in the moment after; fn's own error, if it has one, is joined. Any other error is
// fn's own, unchanged; the lock was held. (fn's own may match ErrLost for another lock that it used; if it comes from a
// Do inside fn, it does not match ErrNotRun.)
//
// The result says nothing about the release. Do waits for its answer, even when ctx has ended, but only if a server is
// connected, and for a tenth of the session timeout at most (1 s by default); otherwise the release goes on in the
// background, and the lock is free when the ensemble can be reached, or when the session ends. Hooks.Released has the
// reason.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}
