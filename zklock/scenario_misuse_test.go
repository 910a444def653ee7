package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Scenarios 41 to 43: misuse of a client, and servers that cannot be reached.

// scenario 41: after Close every call returns ErrClosed at once.
func TestScenario41_ACallAfterCloseReturnsErrClosedAtOnce(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		m := c.Mutex(dir)
		h := s.Lock(m)
		require.NoError(s, c.Close())
		ctx, began := s.Context(), time.Now()
		for name, call := range map[string]func() error{
			"Lock":    func() error { _, _, err := m.Lock(ctx); return err },
			"TryLock": func() error { _, _, err := m.TryLock(ctx); return err },
			"Do": func() error {
				return m.Do(ctx, func(context.Context) error {
					panic("called")
				})
			},
			"Session":    func() error { _, err := c.Session(ctx); return err },
			"Hold.Check": func() error { return h.Check(ctx) },
			"Hold.Multi": func() error {
				_,
					err := h.Multi(ctx, session.OpDelete{Path: dir, Version: -1})
				return err
			},
			"Hold.Unlock":  func() error { return h.Unlock() },
			"Hold.Err":     h.Err,
			"Hold.Context": func() error { return context.Cause(h.Context()) },
		} {
			err := call()
			require.ErrorIs(s, err, zklock.ErrClosed, name)
			require.NotErrorIs(s, err, zklock.ErrLost, name)
		}
		require.NoError(s, c.Close(), "twice")
		require.Equal(s, began, time.Now())
		require.Empty(s, s.Server.Children(dir))
		require.Empty(s, s.Server.Sessions())
	})
}

// scenario 41: Close during calls that wait: all of them return, and no goroutine is left.
func TestScenario41_CloseEndsTheCallsThatWait(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(map[bool]string{false: "connected", true: "without a server"}[down],
			func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					idle, dir, c := locktest.Goroutines(), s.Dir("/locks/a"), s.Client()
					h := s.Lock(c.Mutex(dir))
					var calls []*locktest.Call
					for range 20 {
						calls = append(calls, locktest.Go(s.Context(), c.Mutex(dir).Lock))
					}
					synctest.Wait()
					if down {
						s.Server.Leader().Down()
						time.Sleep(time.Second)
					}
					began := time.Now()
					require.NoError(s, c.Close())
					require.LessOrEqual(s, time.Since(began), 2500*time.Millisecond)
					for _, call := range calls {
						require.True(s, call.Over())
						require.ErrorIs(s, call.Err, zklock.ErrClosed)
					}
					require.ErrorIs(s, h.Err(), zklock.ErrClosed)
					require.Equal(s, idle, locktest.Goroutines())
				})
			})
	}
}

// unreachable are servers that never serve.
var unreachable = map[string]fault.Fault{
	"connections are refused":      fault.Refuse(),
	"handshakes get no answer":     fault.Freeze(),
	"half a handshake is answered": fault.Stall(7).Op(fault.OpConnect),
	"handshakes are hung up on":    fault.CloseBefore().Op(fault.OpConnect),
	"answers are garbage": fault.Garble(func([]byte) []byte {
		return []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
	}).Op(fault.OpConnect),
}

// scenario 41: servers that are never reachable: Dial returns an error within its ctx, says which
// servers it tried, and leaves nothing running.
func TestScenario41_DialOfServersThatNeverAnswerReturnsWithinItsContext(t *testing.T) {
	for name, failure := range unreachable {
		for _, limit := range []time.Duration{0, 100 * time.Millisecond, 5 * time.Second,
			time.Minute} {
			t.Run(fmt.Sprintf("%s for %v", name, limit), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					f := s.Follower()
					idle := locktest.Goroutines()
					down := s.Server.Inject(failure)
					ctx, cancel := context.WithTimeout(s.Context(), limit)
					defer cancel()
					began := time.Now()
					c, err := zklock.Dial(ctx, s.Server.Addr()+","+f.Addr(),
						zklock.WithDialer(s.Server.Dial))
					require.Nil(s, c)
					require.ErrorIs(s, err, context.DeadlineExceeded)
					require.ErrorIs(s, err, zklock.ErrUnreachable)
					require.ErrorContains(s, err, s.Server.Addr())
					require.ErrorContains(s, err, f.Addr())
					require.Equal(s, limit, time.Since(began))
					down.Remove() // so that the server also notices what has ended
					s.Until(3*time.Second, "nothing goes on", func() bool {
						return locktest.Goroutines() == idle
					})
					time.Sleep(13 * time.Second)
					require.Empty(s, s.Server.Sessions(), "those of which no client has heard")
				})
			})
		}
	}
}

// scenario 41: servers go down and do not come back: calls return within their ctx, and their
// errors say what they waited for.
func TestScenario41_ACallWithoutAServerReturnsWithinItsContext(t *testing.T) {
	for name, failure := range unreachable {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				s.Server.DropConnections()
				s.Server.Inject(failure)
				for _, limit := range []time.Duration{50 * time.Millisecond, 3 * time.Second,
					2 * time.Minute} {
					for _, lock := range []func(*zklock.Mutex, context.Context) (context.Context,
						*zklock.Hold, error){
						(*zklock.Mutex).Lock, (*zklock.Mutex).TryLock,
					} {
						ctx, cancel := context.WithTimeout(s.Context(), limit)
						began := time.Now()
						_, _, err := lock(c.Mutex(dir), ctx)
						cancel()
						require.ErrorIs(s, err, zklock.ErrUnreachable)
						require.ErrorContains(s, err, s.Server.Addr(),
							"it says which server did not answer")
						took := time.Since(began)
						require.LessOrEqual(s, took, limit)
						if errors.Is(err, context.DeadlineExceeded) {
							require.Equal(s, limit, took)
						} else {
							require.Equal(s, 5*time.Second, took, "a try does not wait longer")
						}
					}
				}
				began := time.Now()
				_, _, err := c.Mutex(dir, zklock.WithMaxWait(7*time.Second)).Lock(s.Context())
				require.ErrorIs(s, err, zklock.ErrUnreachable)
				require.NotErrorIs(s, err, context.DeadlineExceeded, "the caller's context goes on")
				require.NotErrorIs(s, err, zklock.ErrBusy, "nobody is known to be in the way")
				require.ErrorContains(s, err, s.Server.Addr())
				require.Equal(s, 7*time.Second, time.Since(began))
				require.Empty(s, s.Server.Children(dir))
			})
		})
	}
}

// scenario 41: a dialer that uses all the time that it has delays no call beyond its ctx.
func TestScenario41_ADialerThatHangsKeepsNoCallerBeyondItsContext(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		slow := func(_, _ string, timeout time.Duration) (net.Conn, error) {
			time.Sleep(timeout)
			return nil, context.DeadlineExceeded
		}
		ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := zklock.Dial(ctx, "a:1,b:2,c:3", zklock.WithDialer(slow))
		require.ErrorIs(s, err, context.DeadlineExceeded)
		require.Equal(s, 100*time.Millisecond, time.Since(began))
		time.Sleep(3 * time.Second) // the dialer's own, 1.7 s
	})
}

// scenario 42: a ctx that is cancelled while no call uses it does not make the next acquire fail.
func TestScenario42_ACancelWhileIdleDoesNotPoisonTheNextAcquire(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		id, m := c.SessionID(), c.Mutex(dir)
		over, cancel := context.WithCancel(s.Context())
		cancel()
		for range 3 {
			_, _, err := m.Lock(over)
			require.ErrorIs(s, err, context.Canceled)
			_, _, err = m.TryLock(over)
			require.ErrorIs(s, err, context.Canceled)

			ctx, cancel := context.WithCancel(s.Context())
			_, h, err := m.Lock(ctx)
			require.NoError(s, err)
			cancel() // the call has returned: its ctx bounds the waiting and not the hold
			time.Sleep(time.Second)
			s.Owned(c, h)
			require.NoError(s, h.Context().Err())
			s.Unlock(h)

			ctx, cancel = context.WithCancel(s.Context())
			_, h, err = m.Lock(ctx)
			require.NoError(s, err)
			s.Unlock(h)
			cancel()

			h = s.Lock(m)
			waits, stop := context.WithCancel(s.Context())
			call := locktest.Go(waits, m.Lock)
			require.False(s, call.Over())
			stop()
			require.True(s, call.Over())
			s.Owned(c, h)
			s.Unlock(h)
			require.Empty(s, s.Server.Children(dir))
		}
		_, h, err := m.TryLock(s.Context())
		require.NoError(s, err)
		s.Owned(c, h)
		require.Equal(s, id, c.SessionID())
	})
}

// scenario 43: a wait that is woken repeatedly and goes on keeps one absolute deadline.
func TestScenario43_AWaitThatIsWokenAgainAndAgainKeepsOneDeadline(t *testing.T) {
	const limit = 10 * time.Second
	for name, c := range map[string]struct {
		opts []zklock.LockOption
		ctx  time.Duration
		want error
	}{
		"the context's": {nil, limit, context.DeadlineExceeded},
		"WithMaxWait's": {[]zklock.LockOption{zklock.WithMaxWait(limit)}, time.Hour,
			zklock.ErrBusy},
		"the earlier": {[]zklock.LockOption{zklock.WithMaxWait(time.Minute)}, limit,
			context.DeadlineExceeded},
	} {
		for disturbance, disturb := range map[string]func(
			s *locktest.Sim, c *locktest.Client, dir string,
		){
			"the one before it leaves": func(s *locktest.Sim, _ *locktest.Client, dir string) {
				line := locktest.Contenders(s.Server.Children(dir)) // the waiter is the last
				require.NoError(s, s.Server.Delete(dir+"/"+line[len(line)-2]))
			},
			"the one before it is written to": func(
				s *locktest.Sim, _ *locktest.Client, dir string,
			) {
				line := locktest.Contenders(s.Server.Children(dir))
				require.NoError(s, s.Server.SetData(dir+"/"+line[len(line)-2], nil))
			},
			"the connection drops": func(s *locktest.Sim, _ *locktest.Client, _ string) {
				s.Server.DropConnections()
			},
			"the session expires": func(s *locktest.Sim, c *locktest.Client, _ string) {
				require.NoError(s, s.Server.Expire(c.SessionID()))
			},
			"its place is deleted": func(s *locktest.Sim, _ *locktest.Client, dir string) {
				line := locktest.Contenders(s.Server.Children(dir))
				require.NoError(s, s.Server.Delete(dir+"/"+line[len(line)-1]))
			},
		} {
			t.Run(name+", and "+disturbance, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, cl, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
					for i := range 9 {
						s.Plant(other, fmt.Sprintf("%s/lock-%010d", dir, i))
					}
					require.NoError(s, s.Server.SetSequence(dir, 9))
					ctx, cancel := context.WithTimeout(s.Context(), c.ctx)
					defer cancel()
					call := locktest.Go(ctx, cl.Mutex(dir, c.opts...).Lock)
					for range 5 { // until just before the limit
						time.Sleep(1900 * time.Millisecond)
						require.False(s, call.Over())
						disturb(s, cl, dir)
					}
					<-call.Done
					require.ErrorIs(s, call.Err, c.want)
					require.Equal(s, limit, call.Spent)
					s.Until(3*time.Second, "its place is gone", func() bool {
						return !strings.Contains(strings.Join(s.Server.Children(dir), " "), "_c_")
					})
				})
			})
		}
	}
}

// A nil function panics before any lock is taken and before any request.
func TestANilFunctionPanicsBeforeAnythingIsTaken(t *testing.T) {
	srv := zktest.Run(t)
	c, ctx := locktest.Dial(t, srv), context.Background()
	for name, call := range map[string]func(){
		"Do":              func() { _ = c.Mutex("/l").Do(ctx, nil) },
		"TryDo":           func() { _, _ = c.Mutex("/l").TryDo(ctx, nil) },
		"semaphore Do":    func() { _ = c.Semaphore("/l", 1).Do(ctx, 1, nil) },
		"semaphore TryDo": func() { _, _ = c.Semaphore("/l", 1).TryDo(ctx, 1, nil) },
		"Job.Once":        func() { _, _ = c.Job("/l").Once(ctx, "key", nil) },
		"Run":             func() { _ = c.Election("/l").Run(ctx, nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			require.PanicsWithValue(t, "zklock: nil function", call)
			_, made := srv.Node("/l")
			require.False(t, made)
		})
	}
}

// With a context that has ended, no lock is taken and no function is run.
func TestAContextThatHasEndedTakesNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		over, end := context.WithCancel(s.Context())
		end()
		run, err := c.Job("/l").Once(over, "key", func(context.Context) error {
			s.Error("run")
			return nil
		})
		require.ErrorIs(s, err, zklock.ErrNotRun)
		require.ErrorIs(s, err, context.Canceled)
		require.Equal(s, "no run", run.String())
		err = c.Mutex("/l").Do(over, func(context.Context) error { s.Error("run"); return nil })
		require.ErrorIs(s, err, zklock.ErrNotRun)
	})
}
