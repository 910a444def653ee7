package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

type key string

func TestTheContextThatLockGivesEndsWithTheHoldAndWithItsCaller(t *testing.T) {
	errCaller := errors.New("the caller's own")
	for name, k := range map[string]struct {
		end   func(s *locktest.Sim, h *zklock.Hold, cancel context.CancelCauseFunc)
		cause error
		err   error
	}{
		"the caller ends it": {func(_ *locktest.Sim, _ *zklock.Hold,
			cancel context.CancelCauseFunc) {
			cancel(errCaller)
		}, errCaller, context.Canceled},
		"the caller's deadline": {func(*locktest.Sim, *zklock.Hold, context.CancelCauseFunc) {
			time.Sleep(locktest.LongTime)
		}, context.DeadlineExceeded, context.DeadlineExceeded},
		"the hold is released": {func(s *locktest.Sim, h *zklock.Hold, _ context.CancelCauseFunc) {
			s.Unlock(h)
		}, zklock.ErrUnlocked, context.Canceled},
		"the znode is deleted": {func(s *locktest.Sim, h *zklock.Hold, _ context.CancelCauseFunc) {
			require.NoError(s, s.Server.Delete(h.Node()))
		}, zklock.ErrNodeDeleted, context.Canceled},
		"the servers are away": {func(s *locktest.Sim, _ *zklock.Hold, _ context.CancelCauseFunc) {
			s.Server.Leader().Down()
			time.Sleep(time.Minute)
		}, zklock.ErrLeaseExpired, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				ctx, cancel := context.WithCancelCause(context.WithValue(s.Context(), key("caller"),
					1))
				defer cancel(nil)
				timed, done := context.WithTimeout(ctx, locktest.LongTime)
				defer done()
				work, h, err := c.Mutex("/l", zklock.WithMaxWait(time.Second)).Lock(timed)
				require.NoError(s, err)
				time.Sleep(2 * time.Second) // the znode is watched, and WithMaxWait's time is over
				child, over := context.WithTimeout(work, 2*locktest.LongTime)
				defer over()
				deadline, ok := work.Deadline()
				require.True(s, ok)
				require.Equal(s, time.Now().Add(locktest.LongTime-2*time.Second), deadline)
				require.NoError(s, work.Err())
				found, ok := zklock.HoldFrom(child, "/l")
				require.True(s, ok)
				require.Same(s, h, found)
				require.Equal(s, 1, child.Value(key("caller")))
				given, _, err := c.Mutex("/l").Lock(child)
				require.ErrorIs(s, err, zklock.ErrDeadlock)
				require.Equal(s, child, given, "after an error it is the caller's")

				k.end(s, h, cancel)
				synctest.Wait()
				for _, w := range []context.Context{work, child} {
					<-w.Done()
					require.Equal(s, k.err, w.Err())
					require.ErrorIs(s, context.Cause(w), k.cause)
				}
			})
		})
	}
}

// Each of two holds of one lock has its own caller.
func TestAFurtherHoldsContextEndsWithItsOwnCaller(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l", zklock.WithReentrancy())
		outer, first, err := m.Lock(s.Context())
		require.NoError(s, err)
		ctx, cancel := context.WithCancel(outer)
		inner, second, err := m.Lock(ctx)
		require.NoError(s, err)
		cancel()
		<-inner.Done()
		require.NoError(s, outer.Err())
		s.Unlock(second)
		s.Unlock(first)
		require.ErrorIs(s, context.Cause(outer), zklock.ErrUnlocked)
	})
}

// A caller's context may have methods of its own, which take their time.
func TestNoMethodOfTheCallersContextHoldsUpTheOtherHolds(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l", zklock.WithReentrancy())
		outer, first, err := m.Lock(s.Context())
		require.NoError(s, err)
		gate := make(chan struct{})
		second := locktest.Go(locktest.LateContext{Context: outer, Gate: gate}, m.Lock)
		synctest.Wait()
		s.Unlock(first)
		close(gate)
		<-second.Done
		require.ErrorIs(s, second.Err, context.Canceled)
	})
}

// A loop that writes ctx, hold, err = m.Lock(ctx) calls its second Lock with the first hold's
// context.
func TestALockWithTheContextOfAnEarlierHoldSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l")
		ctx, h, err := m.Lock(s.Context())
		require.NoError(s, err)
		s.Unlock(h)
		_, h, err = m.Lock(ctx)
		require.Nil(s, h)
		require.ErrorIs(s, err, context.Canceled)
		require.ErrorContains(s, err, "with the context of an earlier hold, hold of /l, token ")
		require.ErrorContains(s, err, "released; use the context that its Lock was called with")

		// One whose caller's own end came first is an ordinary end.
		own, cancel := context.WithCancel(s.Context())
		ctx, h, err = m.Lock(own)
		require.NoError(s, err)
		cancel()
		<-ctx.Done()
		s.Unlock(h)
		_, _, err = m.Lock(ctx)
		require.ErrorIs(s, err, context.Canceled)
		require.NotContains(s, err.Error(), "earlier hold")
	})
}

// A helper that is called under nested locks gets the hold of the lock that it names, not the
// innermost one.
func TestHoldFromFindsTheHoldOfAPath(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		holds := func(ctx context.Context) (found []*zklock.Hold) {
			for _, path := range []string{"/order", "/a", "/b", "/orders"} {
				h, ok := zklock.HoldFrom(ctx, path)
				require.Equal(s, h != nil, ok)
				found = append(found, h)
			}
			return found
		}
		order := c.Mutex("/order", zklock.WithReentrancy())
		ctx, outer, err := order.Lock(s.Context())
		require.NoError(s, err)
		ctx, both, err := c.MultiLock([]string{"/a", "/b"}).Lock(ctx)
		require.NoError(s, err)
		require.Equal(s, []*zklock.Hold{outer, both, both, nil}, holds(ctx))
		require.Equal(s, []*zklock.Hold{outer, both, both, nil}, holds(both.Context()),
			"as a value of its caller's")
		ctx, inner, err := order.Lock(ctx)
		require.NoError(s, err)
		require.Equal(s, []*zklock.Hold{inner, both, both, nil}, holds(ctx))
		require.Equal(s, make([]*zklock.Hold, 4), holds(s.Context()))
	})
}

func TestTryDoTellsWhetherTheFunctionWasCalled(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, own := s.Client(), errors.New("the work's own")
		m := c.Mutex("/l")
		ran, err := m.TryDo(s.Context(), func(ctx context.Context) error {
			ran, err := s.Client().Mutex("/l").TryDo(s.Context(), neverRun)
			require.False(s, ran)
			require.NoError(s, err, "busy is no error")
			hold, _ := zklock.HoldFrom(ctx, "/l")
			require.NoError(s, hold.Check(ctx))
			return own
		})
		require.True(s, ran)
		require.Equal(s, own, err)

		ran, err = m.TryDo(s.Context(), func(ctx context.Context) error {
			return m.Do(ctx, neverRun)
		})
		require.True(s, ran, "it is the inner one that was not run")
		require.ErrorIs(s, err, zklock.ErrDeadlock)

		ran, err = m.TryDo(s.Context(), func(ctx context.Context) error {
			hold, _ := zklock.HoldFrom(ctx, "/l")
			return s.Server.Delete(hold.Node())
		})
		require.True(s, ran)
		require.ErrorIs(s, err, zklock.ErrLost)

		ran, err = c.Mutex("l").TryDo(s.Context(), neverRun)
		require.False(s, ran)
		require.ErrorIs(s, err, zklock.ErrPath)
		require.ErrorIs(s, err, zklock.ErrNotRun)
	})
}

type tryDo func(context.Context, func(context.Context) error) (ran bool, err error)

// kindsOfTryDo are the calls that run a function under a lock if they need not wait.
func kindsOfTryDo(c *locktest.Client, dirs []string) map[string]tryDo {
	return map[string]tryDo{
		"mutex":   c.Mutex(dirs[0]).TryDo,
		"handoff": c.Mutex(dirs[0], zklock.WithLocalHandoff()).TryDo,
		"write":   c.RWMutex(dirs[0]).TryDo,
		"read":    c.RWMutex(dirs[0]).TryRDo,
		"multi":   c.MultiLock(dirs).TryDo,
		"semaphore": func(ctx context.Context, fn func(context.Context) error) (bool, error) {
			return c.Semaphore(dirs[0], 1).TryDo(ctx, 1, fn)
		},
	}
}

func TestTryDoOfEachKindCallsTheFunctionIfTheLockIsFree(t *testing.T) {
	for kind := range kindsOfTryDo(&locktest.Client{Client: &zklock.Client{}},
		[]string{"/m/a", "/m/b"}) {
		t.Run(kind, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				own, dirs := errors.New("the work's own"), dirs(s, 2)
				try, others := kindsOfTryDo(s.Client(), dirs)[kind], kindsOfTryDo(s.Client(), dirs)
				other := others[kind]
				if kind == "read" {
					other = others["write"]
				}
				ran, err := try(s.Context(), func(ctx context.Context) error {
					ran, err := other(s.Context(), neverRun)
					require.False(s, ran)
					require.NoError(s, err, "busy is no error")
					if kind == "read" {
						ran, err = others["read"](s.Context(), func(context.Context) error {
							return nil
						})
						require.True(s, ran, "readers share the lock")
						require.NoError(s, err)
					}
					hold, _ := zklock.HoldFrom(ctx, dirs[0])
					require.NoError(s, hold.Check(ctx))
					return own
				})
				require.True(s, ran)
				require.Equal(s, own, err)

				ran, err = other(s.Context(), func(context.Context) error {
					ran, err := try(s.Context(), neverRun)
					require.False(s, ran)
					return err
				})
				require.True(s, ran)
				require.NoError(s, err)

				ran, err = try(s.Context(), func(ctx context.Context) error {
					hold, _ := zklock.HoldFrom(ctx, dirs[0])
					return s.Server.Delete(hold.Node())
				})
				require.True(s, ran)
				require.ErrorIs(s, err, zklock.ErrLost)

				over, end := context.WithCancel(s.Context())
				end()
				ran, err = try(over, neverRun)
				require.False(s, ran)
				require.ErrorIs(s, err, zklock.ErrNotRun)
				require.ErrorIs(s, err, context.Canceled)
			})
		})
	}
}

func TestTryDoOfASemaphoreTakesAllItsPermitsOrNone(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		mine, other := s.Client().Semaphore("/s", 3), s.Client().Semaphore("/s", 3)
		ran, err := mine.TryDo(s.Context(), 2, func(context.Context) error {
			ran, err := other.TryDo(s.Context(), 2, neverRun)
			require.False(s, ran)
			require.NoError(s, err)
			ran, err = other.TryDo(s.Context(), 1, func(context.Context) error { return nil })
			require.True(s, ran)
			return err
		})
		require.True(s, ran)
		require.NoError(s, err)
		ran, err = mine.TryDo(s.Context(), 4, neverRun)
		require.False(s, ran)
		require.ErrorIs(s, err, zklock.ErrNotRun)
		require.ErrorIs(s, err, zklock.ErrInvalid)
	})
}

// clockContext has a deadline by a clock of its own, as a test's fake clock makes.
type clockContext struct {
	context.Context
	over chan struct{}
}

func (c clockContext) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (c clockContext) Done() <-chan struct{}       { return c.over }
func (c clockContext) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestAContextThatEndsByAnotherClockEndsTheWork(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		caller := clockContext{s.Context(), make(chan struct{})}
		require.NoError(s, s.Client().Mutex("/l").Do(caller, func(work context.Context) error {
			close(caller.over)
			select {
			case <-work.Done():
				return nil
			case <-time.After(time.Second):
				return errors.New("the work's context has not ended")
			}
		}))
	})
}
