package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zklock/locker/internal/session/failure"
)

// Mutex is a lock that one holder in the whole fleet can have.
type Mutex struct{ lock }

// Mutex returns the mutex whose contenders queue below path, a znode that Lock makes when it is missing.
func (c *Client) Mutex(path string, opts ...LockOption) *Mutex {
	return &Mutex{c.newLock(nounMutex, opts, path)}
}

// Lock waits its turn, and returns the hold and a context for the work under it, which ends with the hold and with ctx,
// whichever is first. Call Unlock when the work is done, even when ctx has ended. After an error the context is ctx.
//
//	ctx, hold, err := m.Lock(ctx)
//	…
//	defer hold.Unlock()
//	row, err := db.ExecContext(ctx, …)
//
// A deadline of ctx counts for the wait and the work: WithMaxWait bounds the wait alone. The wait survives disconnects and sessions
// that end: in a new session it queues again, at the end.
//
// Errors:
//   - ErrBusy: WithMaxWait's time is over.
//   - ctx's, with who is first in line; ErrUnreachable when there was no connection.
//   - ErrDeadlock, ErrConflict: the caller holds this lock, or something else uses the path.
//   - ErrClosed, ErrPath, ErrInvalid, ErrAuth, or the driver's (zk.ErrNoAuth, …) when the ensemble refuses a step.
func (m *Mutex) Lock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "lock", LockInfo{Kind: KindMutex})
}

// TryLock is Lock if no other contender holds the lock or waits for it, and ErrBusy otherwise, which costs reads only. It
// waits for a connection, and for 0.3 s at most for the holder's name, never for another contender.
func (m *Mutex) TryLock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "try lock", LockInfo{Kind: KindMutex, Try: true})
}

// Do calls fn while it holds the lock. fn's context ends with ctx and with the hold, whichever is first. The lock is released
// after fn has returned or panicked, as by Hold.Unlock.
//
// Nil: fn has returned nil while the lock was held. Errors:
//   - ErrNotRun: fn was not called. The rest of the error is Lock's.
//   - ErrLost, ErrClosed: fn was called, and the lock was lost before it returned, or, with ErrNodeDeleted, perhaps just after.
//     fn's own error, if it has one, is joined.
//   - Any other: fn's own, unchanged; the lock was held.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

// TryDo calls fn while it holds the lock, if no other contender holds the lock or waits. It returns whether fn was called.
//
// If fn was called, err is that of Do. If not:
//   - nil: another contender holds the lock or waits.
//   - ErrNotRun: TryLock failed for another reason. The rest of the error is TryLock's.
func (m *Mutex) TryDo(ctx context.Context, fn func(ctx context.Context) error) (ran bool, err error) {
	return tryDo(ctx, m.TryLock, fn)
}

// MultiLock is several mutexes that are held together: all or none. One transaction takes all places, so there is no deadlock, in
// whatever order the paths are named. Mutexes of the same paths queue in the same lines.
//
// A hold that loses one of its places ends, and keeps the others until Unlock, or until WithMaxHold's time is over: its holder may
// still be working on what they protect.
type MultiLock struct{ lock }

// MultiLock returns the lock of all paths. Calls fail with ErrPath if paths is empty or names one twice, and with ErrTooLarge if
// one transaction can't take all: see WithJuteMaxBuffer.
func (c *Client) MultiLock(paths []string, opts ...LockOption) *MultiLock {
	m := &MultiLock{c.newLock("multi lock", opts, slices.Clone(paths)...)}
	if len(paths) == 0 {
		m.err = fmt.Errorf("%w: multi lock: has no paths", ErrPath)
	}
	return m
}

// Lock waits until it holds all paths and returns one hold of them, whose token is greater than that of every earlier holder of any
// of the paths. Contract and errors are those of Mutex.Lock. With the context of a hold of one of the paths it returns
// ErrDeadlock. WithReentrancy changes that only if the hold has exactly these paths.
func (m *MultiLock) Lock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "lock", LockInfo{Kind: KindMulti})
}

// TryLock takes all or none: ErrBusy, without a write, when one of the lines is not empty. See Mutex.TryLock.
func (m *MultiLock) TryLock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "try lock", LockInfo{Kind: KindMulti, Try: true})
}

// Do calls fn while it holds all: see Mutex.Do.
func (m *MultiLock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

// TryDo calls fn while it holds all, if none of the lines has another contender. It returns whether fn was called: see
// Mutex.TryDo.
func (m *MultiLock) TryDo(ctx context.Context, fn func(ctx context.Context) error) (ran bool, err error) {
	return tryDo(ctx, m.TryLock, fn)
}

func samePaths(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func do(ctx context.Context, lock func(context.Context) (context.Context, *Hold, error), fn func(context.Context) error) error {
	needFunction(fn == nil)
	_, h, err := lock(ctx)
	if err != nil {
		return notRunError{err}
	}
	return h.do(ctx, fn)
}

// tryDo is do with a call that does not wait. ran reports whether fn was called; that the lock is busy is no error.
func tryDo(ctx context.Context, try func(context.Context) (context.Context, *Hold, error),
	fn func(context.Context) error) (ran bool, err error) {
	err = do(ctx, try, fn)
	switch {
	case !errors.Is(err, ErrNotRun):
		return true, err
	case errors.Is(err, ErrBusy):
		return false, nil
	}
	return false, err
}

// notRunError is why Do's function was not called.
type notRunError struct{ error }

func (e notRunError) Unwrap() error        { return e.error }
func (e notRunError) Is(target error) bool { return target == ErrNotRun }

// hide returns err so that it does not match hidden any more: a nested call's error is not the outer call's.
func hide(err error, hidden ...error) error {
	if failure.IsOne(err, hidden...) {
		return &hidingError{err, hidden}
	}
	return err
}

type hidingError struct {
	err    error
	hidden []error
}

func (e *hidingError) Error() string { return e.err.Error() }
func (e *hidingError) Is(target error) bool {
	return !slices.Contains(e.hidden, target) && errors.Is(e.err, target)
}
func (e *hidingError) As(target any) bool { return errors.As(e.err, target) }
