package zklock

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Semaphore is a number of permits that holders in the whole ensemble share. Permits are given in order of arrival, all
// that a call asks for or none: a large request waits its turn and is not starved by small ones. Like a Mutex it is a
// description and stores no ownership.
type Semaphore struct {
	b    base
	size int

	// adopted is the size at the ensemble after this Semaphore has once agreed with it, and so follows its changes.
	adopted atomic.Int64
}

// Semaphore returns the semaphore of size permits whose contenders queue below path. The first one to use it writes
// its size at the path; one that comes with another size gets ErrConflict, which names both. It does no I/O; a path,
// size or option that can't work is reported by every call on it (ErrPath, ErrOption). WithReentrancy does not apply.
// The size is kept in the data of the path's znode: data that are somebody else's stay, and are ErrConflict.
// With WithContainer the size goes with the directory, when that has not been used for a while, unless Resize was called.
// With an access list (WithACL) that does not let every contender write, each release wakes all who wait, and not two.
func (c *Client) Semaphore(path string, size int, opts ...LockOption) *Semaphore {
	s := &Semaphore{b: c.newBase(path, opts), size: size}
	if s.b.err == nil {
		s.b.err = checkSize(size)
	}
	return s
}

func checkSize(size int) error {
	if size < 1 || size > recipe.MaxPermits {
		return fmt.Errorf("%w: semaphore of %d permits: the size is not between 1 and %d", ErrOption, size, recipe.MaxPermits)
	}
	return nil
}

// Acquire waits until n permits are free and returns the hold of them all. Contract and errors are those of
// Mutex.Lock; besides: ErrOption when n < 1 or n is greater than the size, ErrConflict when the semaphore has another
// size at the ensemble. ErrDeadlock when ctx comes from holds of this semaphore whose permits, with n, are more than its
// size: those are not released while the call waits, so that it would wait for ever. (Not for want of a release
// elsewhere: two callers who each hold one of two permits and want one more wait for each other unnoticed.)
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Hold, error) {
	return s.b.lock(ctx, s.request("acquire", n, false))
}

// TryAcquire returns the hold of n permits if they are free and nobody waits for some; otherwise ErrBusy, which costs
// reads only. See Mutex.TryLock.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	return s.b.acquire(ctx, s.request("try acquire", n, true))
}

// Do calls fn while it holds n permits: see Mutex.Do.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) error {
	return do(ctx, func(ctx context.Context) (*Hold, error) { return s.Acquire(ctx, n) }, fn)
}

// Resize changes the size at the ensemble, for everybody: more permits wake those who wait for them; fewer let holders
// finish. Semaphores that were in use with the old size follow. It is one write, after some reads; after an error that
// matches ErrUnknownOutcome the size may have been changed, and then everybody follows just the same. With WithContainer
// the directory stays from then on, by a znode "resized" in it, so that the size is not forgotten.
// ErrOption: the size is not positive. ErrConflict: the path has data that are somebody else's.
func (s *Semaphore) Resize(ctx context.Context, size int) error {
	s.b.need(ctx)
	if s.b.err != nil {
		return &lockError{"resize", s.b.path, s.b.err}
	}
	if err := checkSize(size); err != nil {
		return &lockError{"resize", s.b.path, err}
	}
	z, err := s.b.c.Session(ctx)
	if err == nil {
		err = s.b.queue(recipe.Permits).Resize(ctx, z, size)
	}
	if err != nil {
		return &lockError{"resize", s.b.path, err}
	}
	s.adopted.Store(int64(size))
	return nil
}

func (s *Semaphore) request(op string, n int, try bool) request {
	q := s.b.queue(recipe.Permits)
	q.Permits = n
	return request{op: op, try: try, kind: "semaphore", queue: q, stand: s.stand}
}

// stand agrees on the size, takes a place and waits for the permits.
func (s *Semaphore) stand(ctx context.Context, z *session.Session, r *request) (place, error) {
	q := r.queue
	if q.Permits < 1 {
		return nil, fmt.Errorf("%w: %d permits: less than one", ErrOption, q.Permits)
	}
	if s.adopted.Load() == 0 && q.Permits > s.size {
		return nil, tooMany(q.Permits, s.size) // whatever the ensemble says: nothing need be made to know it
	}
	size, err := q.Size(ctx, z, s.size)
	if err != nil {
		return nil, err
	}
	if s.refuse(ctx, r, size) != nil { // by what may be a server that lags behind: it asks its leader first
		if err := z.Sync(ctx, q.Dir); err != nil {
			return nil, err
		}
		if size, err = q.Size(ctx, z, s.size); err != nil {
			return nil, err
		}
		if err := s.refuse(ctx, r, size); err != nil {
			return nil, err
		}
	}
	s.adopted.Store(int64(size))
	if r.try {
		t, err := q.TryPermits(ctx, z, size)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	t, err := q.Enter(ctx, z)
	if err != nil {
		return nil, err
	}
	return t, t.WaitPermits(ctx, size, false)
}

// refuse says why a call can't be served by a semaphore that has that size at the ensemble.
func (s *Semaphore) refuse(ctx context.Context, r *request, size int) error {
	n := r.queue.Permits
	own, _ := ctx.Value(permitsKey{s.b.c, s.b.path}).(int)
	switch {
	case s.adopted.Load() == 0 && size != s.size:
		return r.queue.SizeError(size, s.size)
	case n > size:
		return tooMany(n, size)
	case !r.try && own+n > size:
		return fmt.Errorf("%w: %d of %d permits, and asks for %d more", ErrDeadlock, own, size, n)
	}
	return nil
}

func tooMany(n, size int) error {
	return fmt.Errorf("%w: %d permits: more than the semaphore has, which is %d", ErrOption, n, size)
}

// permitsKey finds in a context how many permits of a semaphore the holds that it belongs to have.
type permitsKey lockKey
