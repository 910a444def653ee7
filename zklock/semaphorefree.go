package zklock

import (
	"context"
	"errors"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Size returns how many permits the semaphore has at the ensemble, and how many of them no contender has or waits for at
// that moment. A semaphore that has not been used has the size that this Semaphore would give it. It costs a sync and two
// reads, and writes nothing. ErrConflict: the path has data that are not this library's.
func (s *Semaphore) Size(ctx context.Context) (size, free int, err error) {
	s.use().need(ctx)
	if err = s.lock.err; err == nil {
		var z *session.Session
		if z, err = s.lock.c.Session(ctx); err == nil {
			size, free, err = s.size.Free(ctx, z, s.lock.queue(recipe.Permits))
		}
	}
	return size, free, failed("size", s.lock.path, err)
}

// TryAcquireFree returns the hold of all permits that are free, one at least: see Hold.Permits for how many. ErrBusy:
// none is free, or a contender waits. Other errors as for TryAcquire.
func (s *Semaphore) TryAcquireFree(ctx context.Context) (h *Hold, err error) {
	const attempts = 3 // others may be quicker
	for range attempts {
		_, free, sizeErr := s.Size(ctx)
		if sizeErr != nil {
			return nil, sizeErr
		}
		if h, err = s.TryAcquire(ctx, max(free, 1)); free <= 1 || !errors.Is(err, ErrBusy) {
			break
		}
	}
	return h, err
}

// Permits returns how many permits of a semaphore the hold has; 0 for another kind of lock.
func (h *Hold) Permits() int {
	h.need()
	return h.a.info.Permits
}
