package zklock

import (
	"cmp"
	"context"
	"fmt"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
)

// Semaphore is a number of permits that holders in the whole fleet share. Permits are given in
// order of arrival, all that a call asks for or none: a large request waits its turn and is not
// starved by small ones.
type Semaphore struct{ lock }

// Semaphore returns the semaphore of size permits whose contenders queue below path. WithReentrancy
// and WithLocalHandoff are refused.
//
// The first client writes the size to the data of the path's znode. From then on that size applies:
// a program with another size uses it and logs a warning. Resize changes it. Other data there cause
// ErrConflict, and stay. With WithContainer the size is deleted with the directory, unless Resize
// was called.
func (c *Client) Semaphore(path string, size int, opts ...LockOption) *Semaphore {
	s := &Semaphore{c.newLock(&semaphoreKind, opts, path)}
	s.place.Size = queue.NewSize(size)
	s.err = cmp.Or(s.err, checkSize(size))
	return s
}

func checkSize(size int) error {
	if size < 1 || size > recipe.MaxPermits {
		return fmt.Errorf("%w: semaphore of %d permits: the size is not between 1 and %d",
			ErrInvalid, size, recipe.MaxPermits)
	}
	return nil
}

// Acquire waits until n permits are free and returns the hold of them all. Contract and errors are
// those of Mutex.Lock; besides: ErrInvalid when n < 1 or n is greater than the size, ErrDeadlock
// when ctx comes from holds of this semaphore whose permits, with n, are more than its size.
// Deadlock between callers is not detected.
func (s *Semaphore) Acquire(ctx context.Context, n int) (context.Context, *Hold, error) {
	return s.acquire(ctx, "acquire", LockInfo{Kind: KindSemaphore, Permits: n})
}

// TryAcquire returns the hold of n permits if they are free and no contender waits; else ErrBusy,
// which costs only reads. See Mutex.TryLock.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (context.Context, *Hold, error) {
	return s.acquire(ctx, "try acquire", LockInfo{Kind: KindSemaphore, Permits: n, Try: true})
}

// Do calls fn while it holds n permits: see Mutex.Do.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) error {
	return do(ctx, func(ctx context.Context) (context.Context, *Hold, error) {
		return s.Acquire(ctx, n)
	}, fn)
}

// TryDo calls fn while it holds n permits, if they are free and no contender waits. It returns
// whether fn was called: see Mutex.TryDo.
func (s *Semaphore) TryDo(
	ctx context.Context, n int, fn func(ctx context.Context) error,
) (ran bool, err error) {
	return tryDo(ctx, func(ctx context.Context) (context.Context, *Hold, error) {
		return s.TryAcquire(ctx, n)
	}, fn)
}

// Resize changes the size at the ensemble, for all clients. After a decrease, holders finish, and
// the first waiter gets ErrInvalid if it wants more. With WithContainer the directory stays from
// then on.
//
// Errors: ErrInvalid: the size is out of range. ErrConflict: the path has data that are not this
// library's. ErrUnknownOutcome: the size may have been changed.
func (s *Semaphore) Resize(ctx context.Context, size int) error {
	l := &s.lock
	if err := checkSize(size); l.err == nil && err != nil {
		return l.fail("resize", err)
	}
	return l.withSession(ctx, "resize", func(z *session.Session) error {
		q := l.queueIn(ctx, l.path, LockInfo{Kind: KindSemaphore})
		return l.place.Size.Resize(ctx, z, q, size)
	})
}

// Size returns how many permits the semaphore has at the ensemble, and how many of them no
// contender has or waits for. One that has not been used has this Semaphore's size. ErrConflict:
// the path has data that are not this library's.
func (s *Semaphore) Size(ctx context.Context) (size, free int, err error) {
	l := &s.lock
	err = l.withSession(ctx, "size", func(z *session.Session) (err error) {
		q := l.queueIn(ctx, l.path, LockInfo{Kind: KindSemaphore})
		size, free, err = l.place.Size.Free(ctx, z, q)
		return err
	})
	return size, free, err
}
