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

func request(ctx context.Context, w http.ResponseWriter, r *http.Request, m *zklock.Mutex) error {
	_ = m.Do(r.Context(), func(held context.Context) error {
		inner := r.WithContext(held)
		_ = work(inner.Context())
		_ = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = work(r.Context()) })
		defer work(r.Context())
		note(r.Context())
		more, stop := context.WithTimeout(r.Context(), 1) // want `r.Context.. does not end when the lock is lost: use the context that Do`
		defer stop()
		_ = work(more)
		_ = work(context.WithValue(r.Context(), "k", "v")) // want `r.Context.. does not end`
		from := r.Context()
		_ = work(from)                               // want `r.Context.. does not end`
		if err := work((*r).Context()); err != nil { // want `does not end when the lock is lost`
			return err
		}
		return work(r.Context()) // want `r.Context.. does not end when the lock is lost: use the context that Do`
	})
	return m.Do(r.Context(), func(held context.Context) error {
		r = r.WithContext(held)
		ctx = held
		return errors.Join(work(r.Context()), work(ctx))
	})
}

type server struct {
	ctx  context.Context
	n    int
	kept struct{ ctx context.Context }
}

var global context.Context

func (s *server) fields(rw *zklock.RWMutex, sem *zklock.Semaphore) error {
	_ = rw.RDo(s.ctx, func(held context.Context) error {
		s.n++
		s.n = 2
		own := server{ctx: held}
		_ = work(own.ctx)
		_ = work(s.kept.ctx) // want `s.kept.ctx does not end when the lock is lost: use the context that RDo`
		_ = work(global)     // want `global does not end when the lock is lost`
		return work((s.ctx)) // want `s.ctx does not end when the lock is lost: use the context that RDo`
	})
	_, _ = sem.TryDo(s.ctx, 1, func(held context.Context) error { return work(s.ctx) }) // want `s.ctx .* TryDo gives`
	return rw.RDo(s.ctx, func(held context.Context) error {
		s.ctx = held
		return work(s.ctx)
	})
}

func nothing(ctx context.Context, m *zklock.Mutex, srv *http.Server) {
	_, _ = m.TryDo(ctx, func(held context.Context) error {
		_ = work(context.Background()) // want `context.Background.. does not end when the lock is lost: use the context that TryDo`
		_ = work(context.TODO())       // want `context.TODO.. does not end`
		note(context.Background())
		_ = srv.Shutdown(context.Background())
		cleanup, stop := context.WithTimeout(context.Background(), 1)
		defer stop()
		_ = srv.Shutdown(cleanup)
		detached, end := context.WithTimeout(context.Background(), 1)
		defer end()
		var plain = context.Background()
		_ = work(plain)                                           // want `context.Background.. does not end`
		_ = work(context.WithValue(context.Background(), "k", 1)) // want `context.Background.. does not end`
		either := held
		if either == nil {
			either = context.Background()
		}
		_ = work(either)
		return work(detached) // want `context.Background.. does not end`
	})
}

func busy(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	switch {
	case errors.Is(err, zklock.ErrBusy):
		return work(ctx)
	case err != nil:
		return errors.Join(err, work(ctx))
	}
	return hold.Unlock()
}

func busyByDefault(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	switch {
	default:
		return work(ctx)
	case err == nil:
		return hold.Unlock()
	case ctx.Err() == nil:
		return work(ctx)
	}
}

func busyByValue(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	switch err {
	case zklock.ErrBusy:
		return work(ctx)
	case nil:
		return hold.Unlock()
	default:
		return work(ctx)
	}
}

func heldInASwitch(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	switch {
	case errors.Is(err, zklock.ErrBusy):
		return work(ctx)
	case err == nil:
		defer hold.Unlock()
		return work(ctx) // want `ctx does not end when the lock is lost: use the context that TryLock returns`
	}
	return err
}

func otherwise(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	if err == nil {
		_ = hold.Unlock()
	} else {
		return work(ctx)
	}
	return nil
}

func unlessItReturned(ctx context.Context, m *zklock.Mutex) error {
	if _, hold, err := m.TryLock(ctx); err == nil {
		return hold.Unlock()
	} else if err != zklock.ErrBusy {
		return work(ctx)
	}
	_, hold, err := m.TryLock(ctx)
	if err == nil {
		defer hold.Unlock()
		return nil
	}
	return work(ctx)
}

func isBusy(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	if err == zklock.ErrBusy {
		return work(ctx)
	}
	return errors.Join(err, hold.Unlock())
}

func heldInTheElse(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	if err != nil {
		return work(ctx)
	} else {
		defer hold.Unlock()
		return work(ctx) // want `ctx does not end when the lock is lost`
	}
}

func anotherError(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	err = note2()
	if err == nil {
		return nil
	}
	return work(ctx) // want `ctx does not end when the lock is lost`
}

func note2() error { return nil }

func deferred(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = work(ctx) }() // runs after the next
	defer hold.Unlock()
	return nil
}

func deferredTogether(ctx context.Context, m *zklock.Mutex) (err error) {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_ = hold.Unlock()
		err = work(ctx)
	}()
	return nil
}

func besideADefer(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_ = hold.Unlock()
		_ = work(ctx)
	}()
	return work(ctx) // want `ctx does not end when the lock is lost`
}

func lockedForARequest(r *http.Request, m *zklock.Mutex) error {
	_, hold, err := m.Lock(r.Context())
	if err != nil {
		return err
	}
	defer hold.Unlock()
	return work(r.Context()) // want `r.Context.. does not end when the lock is lost: use the context that Lock returns`
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

// Other code gets the hold, and may check it.

func sends(ctx context.Context, m *zklock.Mutex, holds chan *zklock.Hold) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	holds <- hold
	return work(ctx)
}

func pointsTo(ctx context.Context, m *zklock.Mutex, s *struct{ hold **zklock.Hold }) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	s.hold = &hold
	return work(ctx)
}

func renames(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	var h = hold
	for h.Err() == nil {
		_ = work(ctx)
	}
	return h.Unlock()
}

func keysBy(ctx context.Context, m *zklock.Mutex, all map[*zklock.Hold]bool) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	all[(hold)] = true
	return work(ctx)
}

func onlyCompares(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil || hold == nil {
		return err
	}
	defer hold.Unlock()
	return work(ctx) // want `ctx does not end when the lock is lost`
}

func setsAgain(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	_ = work(ctx) // want `ctx does not end when the lock is lost`
	_ = hold.Unlock()
	hold = nil
	return hold.Unlock()
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
		go func() {
			go work(context.WithoutCancel(ctx)) // want `this goroutine may go on after the lock is released or lost`
		}()
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

func unlessCached(ctx context.Context, m *zklock.Mutex) error {
	err := note2()
	if err == nil {
		return nil
	}
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	return work(ctx) // want `ctx does not end when the lock is lost`
}

func waitsIfBusy(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	if err != nil {
		_, hold, err = m.Lock(ctx)
		if err != nil {
			return err
		}
		defer hold.Unlock()
		return work(ctx) // want `ctx does not end when the lock is lost: use the context that Lock returns`
	}
	return hold.Unlock()
}

func heldAndReady(ctx context.Context, m *zklock.Mutex, ready bool) error {
	_, hold, err := m.TryLock(ctx)
	if err == nil && ready {
		defer hold.Unlock()
		return work(ctx) // want `ctx does not end when the lock is lost`
	}
	return work(ctx)
}

func notHeldOrNotReady(ctx context.Context, m *zklock.Mutex, ready bool) error {
	_, hold, err := m.TryLock(ctx)
	if err != nil || !ready {
		return work(ctx)
	} else {
		defer hold.Unlock()
		return work(ctx) // want `ctx does not end when the lock is lost`
	}
}

func heldAndReadyInASwitch(ctx context.Context, m *zklock.Mutex, ready bool) error {
	_, hold, err := m.TryLock(ctx)
	switch {
	case err == nil && ready:
		defer hold.Unlock()
		return nil
	case err == nil:
		defer hold.Unlock()
		return work(ctx) // want `ctx does not end when the lock is lost`
	default:
		return work(ctx)
	}
}

func heldUnlessWrapped(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.TryLock(ctx)
	switch {
	case errors.Is(err, zklock.ErrBusy):
		err = errors.Join(err, note2())
	case err == nil:
		return hold.Unlock()
	default:
		return work(ctx)
	}
	if err != nil {
		return work(ctx)
	}
	return nil
}

func errorOfTheWork(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	if err = note2(); err != nil {
		return work(ctx) // want `ctx does not end when the lock is lost`
	}
	return nil
}

func errorOfTheWorkInASwitch(ctx context.Context, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	err = note2()
	switch err {
	case nil:
		return nil
	}
	return work(ctx) // want `ctx does not end when the lock is lost`
}

func parameters(ctx context.Context, m *zklock.Mutex) error {
	_ = m.Do(ctx, func(held context.Context) error {
		if held == nil {
			held = context.Background()
		}
		return work(held)
	})
	return m.Do(ctx, func(held context.Context) error {
		named := func() (other context.Context) {
			_ = work(other)
			other = context.Background()
			return other
		}
		swap := func(a, b context.Context) error {
			a, b = b, a
			return work(a)
		}
		switch a := any(held).(type) {
		case context.Context:
			b := a
			a = b
			return work(a)
		}
		return swap(held, named())
	})
}

// A function value, a builtin and a conversion are work only if they can fail.
func otherCallees(ctx context.Context, m *zklock.Mutex) error {
	var all []context.Context
	note := func(context.Context) {}
	try := func(context.Context) error { return nil }
	return m.Do(ctx, func(context.Context) error {
		note(ctx)
		all = append(all, ctx)
		_ = any(ctx)
		return try(ctx) // want `ctx does not end when the lock is lost`
	})
}
