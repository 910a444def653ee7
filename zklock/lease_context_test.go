package zklock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// askedAt makes many goroutines ask at the very instant at which the lease of h is over. That
// simulates a stop of the process, after which they may run before any timer does. The session is
// cut off.
func askedAt(s *locktest.Sim, c *locktest.Client, h *zklock.Hold, ask func() bool) {
	const timeout = 10 * time.Second
	away, frozen := s.Server.Inject(fault.Refuse()), s.Server.Inject(
		fault.Freeze().Session(c.SessionID()))
	// early enough that all have heard of it, and stop, by then
	end := h.SafeUntil().Add(-timeout/25 - timeout/20)
	var askers sync.WaitGroup
	var believed atomic.Int32
	for range 50 {
		askers.Go(func() {
			time.Sleep(time.Until(end))
			if !ask() {
				believed.Add(1)
			}
		})
	}
	askers.Wait()
	frozen.Remove()
	away.Remove()
	require.Zero(s, believed.Load(), "of 50 who asked were told that the lock is held")
	require.ErrorIs(s, h.Err(), zklock.ErrLeaseExpired)
}

// childKey is the key of a value, which is a child of the hold's context.
type childKey struct{}

// isDone reports whether a context is done.
func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// asks are the ways to ask whether a hold's context has ended.
var asks = map[string]func(ctx context.Context) bool{
	"Err":   func(ctx context.Context) bool { return ctx.Err() != nil },
	"Done":  isDone,
	"Cause": func(ctx context.Context) bool { return context.Cause(ctx) != nil },
	"a value's": func(ctx context.Context) bool {
		return context.WithValue(ctx, childKey{},
			1).Err() != nil
	},
	"a new child": func(ctx context.Context) bool {
		c, end := context.WithCancel(ctx)
		defer end()
		return c.Err() != nil
	},
	"HoldFrom": func(ctx context.Context) bool {
		h, _ := zklock.HoldFrom(ctx, "/locks/a")
		return h.Err() != nil
	},
	"a value of a child": func(ctx context.Context) bool {
		child := ctx.Value(childKey{}).(context.Context) //nolint:forcetypeassert // put there below
		_ = child.Value("what a tracer or a client asks for")
		return child.Err() != nil && isDone(child)
	},
}

// Scenario 63: every method of the context of a hold, of Do or Election.Run reports that the lock
// is lost, although no timer has run.
func TestScenario63_EveryQuestionAboutALostHoldIsAnsweredWithTheLoss(t *testing.T) {
	kinds := map[string]func(s *locktest.Sim, c *locktest.Client,
		use func(ctx context.Context, h *zklock.Hold)){
		"Lock": func(s *locktest.Sim, c *locktest.Client, use func(context.Context, *zklock.Hold)) {
			h := s.Lock(c.Mutex("/locks/a"))
			use(h.Context(), h)
		},
		"Do": func(s *locktest.Sim, c *locktest.Client, use func(context.Context, *zklock.Hold)) {
			err := c.Mutex("/locks/a").Do(s.Context(), func(ctx context.Context) error {
				h, _ := zklock.HoldFrom(ctx, "/locks/a")
				use(ctx, h)
				return nil
			})
			require.ErrorIs(s, err, zklock.ErrLeaseExpired)
		},
		"Do with local handoff": func(s *locktest.Sim, c *locktest.Client,
			use func(context.Context, *zklock.Hold)) {
			_ = c.Mutex("/locks/a", zklock.WithLocalHandoff()).Do(s.Context(),
				func(ctx context.Context) error {
					h, _ := zklock.HoldFrom(ctx, "/locks/a")
					use(ctx, h)
					return nil
				})
		},
		"Election.Run": func(s *locktest.Sim, c *locktest.Client,
			use func(context.Context, *zklock.Hold)) {
			ctx, end := context.WithCancel(s.Context())
			_ = c.Election("/locks/a").Run(ctx, nil,
				func(ctx context.Context, l *zklock.Hold) error {
					use(ctx, l)
					end()
					return nil
				})
		},
	}
	for kind, with := range kinds {
		for name, ask := range asks {
			t.Run(kind+"/"+name, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					c := s.Client()
					with(s, c, func(ctx context.Context, h *zklock.Hold) {
						child, end := context.WithTimeout(ctx, time.Hour)
						defer end()
						ctx = context.WithValue(ctx, childKey{}, child)
						askedAt(s, c, h, func() bool { return ask(ctx) })
					})
				})
			})
		}
	}
}

func TestAskingAHoldsContextMakesNoGarbage(t *testing.T) {
	srv := zktest.Run(t)
	h := locktest.Lock(t, locktest.Dial(t, srv).Mutex("/l"))
	ctx := h.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = ctx.Err(), ctx.Done() }))
}

// The work of Do ends by the deadline of the caller's context, and each of the two contexts has a
// timer for it. When the work's context has ended, so has the caller's. (After a stop of the
// process many timers are due at once, in any order.)
func TestAWorkThatEndsByTheCallersDeadlineDoesNotEndBeforeIt(t *testing.T) {
	for range 20 {
		locktest.Simulate(t, func(s *locktest.Sim) {
			c := s.Client()
			run, end := context.WithTimeout(s.Context(), time.Minute)
			defer end()
			var workers sync.WaitGroup
			var early atomic.Int32
			for i := range 30 {
				workers.Go(func() {
					m := c.Mutex("/locks/" + string(rune(97+i)))
					if run.Err() != nil {
						return
					}
					err := m.Do(run, func(ctx context.Context) error {
						<-ctx.Done()
						return ctx.Err()
					})
					if run.Err() == nil {
						early.Add(1)
					}
					require.ErrorIs(s, err, context.DeadlineExceeded)
				})
			}
			workers.Wait()
			require.Zero(s, early.Load(),
				"of 30 calls failed with a deadline that had not come for their caller")
		})
	}
}
