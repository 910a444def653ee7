package a

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/zklock/locker/zklock"
)

func work(ctx context.Context) error { return ctx.Err() }

func note(context.Context) {}

func inside(ctx context.Context, m *zklock.Mutex, s *zklock.Semaphore, j *zklock.Job, srv *http.Server) error {
	_ = m.Do(ctx, func(held context.Context) error {
		if ctx.Err() != nil || context.Cause(ctx) != nil { // asks only
			return work(held)
		}
		_ = srv.Shutdown(ctx)
		defer work(ctx)
		note(ctx)
		more, stop := context.WithCancel(ctx) // want `ctx does not end when the lock is lost: use the context that Do gives its function`
		defer stop()
		return work(more)
	})
	_ = s.Do(ctx, 1, func(context.Context) error { return work(ctx) }) // want `ctx does not end when the lock is lost`
	_, _ = j.Once(ctx, "k", func(held context.Context) error {
		return m.Do(held, func(ctx context.Context) error { return work(held) }) // want `held does not end when the lock is lost`
	})
	_, err := m.TryDo(ctx, func(ctx context.Context) error { return work(ctx) })
	return err
}

func each(ctx context.Context, rw *zklock.RWMutex, multi *zklock.MultiLock, s *zklock.Semaphore) {
	_ = rw.RDo(ctx, func(context.Context) error { return work(ctx) })         // want `the context that RDo gives`
	_, _ = rw.TryDo(ctx, func(context.Context) error { return work(ctx) })    // want `the context that TryDo gives`
	_, _ = rw.TryRDo(ctx, func(context.Context) error { return work(ctx) })   // want `the context that TryRDo gives`
	_, _ = multi.TryDo(ctx, func(context.Context) error { return work(ctx) }) // want `the context that TryDo gives`
	_, _ = s.TryDo(ctx, 1, func(context.Context) error { return work(ctx) })  // want `the context that TryDo gives`
	_, _, _ = rw.TryRLock(ctx)                                                // want `the Hold is thrown away`
}

func after(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	return work(ctx) // want `ctx does not end when the lock is lost: use the context that Lock returns`
}

func guarded(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	return errors.Join(hold.Multi(ctx), work(hold.Context()))
}

func looks(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	for hold.Err() == nil {
		if err := work(ctx); err != nil {
			return err
		}
	}
	return nil
}

func right(ctx context.Context, m *zklock.Mutex) error {
	ctx, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	return work(ctx)
}

func hands(ctx context.Context, m *zklock.Mutex) (*zklock.Hold, error) {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return nil, errors.Join(err, work(ctx))
	}
	return hold, nil
}

func elsewhere(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	if errors.Is(err, context.Canceled) {
		return work(ctx)
	}
	if err != nil {
		return err
	}
	if err := hold.Unlock(); err != nil {
		return err
	}
	return work(ctx)
}

type service struct{ hold *zklock.Hold }

func (s *service) keeps(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	s.hold = hold
	return work(ctx)
}

func group(ctx context.Context) (*service, context.Context) { return nil, ctx }

func derives(ctx context.Context, m *zklock.Mutex) error {
	return m.Do(ctx, func(context.Context) error {
		_, ctx := group(ctx) // want `ctx does not end when the lock is lost`
		for range 3 {
			go work(context.WithoutCancel(ctx)) // want `this goroutine may go on`
		}
		return nil
	})
}

func thrown(ctx context.Context, m *zklock.Mutex, s *zklock.Semaphore) error {
	_, _, err := m.TryLock(ctx) // want `the Hold is thrown away: nothing can unlock this lock before the Client is closed`
	if err != nil {
		return err
	}
	ctx, _, err = s.Acquire(ctx, 1) // want `the Hold is thrown away`
	m.Lock(ctx)                     // want `the Hold is thrown away`
	return err
}

func variants(ctx context.Context, j *zklock.Job, fn func(context.Context) error) error {
	j.AtMostOnce() // want `the result is thrown away: AtMostOnce changes nothing but what it returns`
	_, err := j.AtMostOnce().Once(ctx, "key", fn)
	return err
}

func goroutines(ctx context.Context, m *zklock.Mutex) error {
	_ = m.Do(ctx, func(ctx context.Context) error {
		go work(context.WithoutCancel(ctx)) // want `this goroutine may go on after the lock is released or lost`
		go work(ctx)
		return nil
	})
	return m.Do(ctx, func(ctx context.Context) error {
		var all sync.WaitGroup
		all.Add(1)
		go func() {
			defer all.Done()
			work(context.WithoutCancel(ctx))
		}()
		all.Wait()
		return nil
	})
}
