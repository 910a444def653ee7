package zklock_test

import (
	"context"
	"fmt"
	"net"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Client misuse, and servers that are not there: scenarios 41 to 43.

// scenario 41: a client that was closed: every call returns ErrClosed, at once.
func TestScenario41_ACallAfterCloseReturnsErrClosedAtOnce(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		m := c.Mutex(dir)
		h := s.lock(m)
		require.NoError(s, c.Close())
		ctx, began := s.Context(), time.Now()
		for name, call := range map[string]func() error{
			"Lock":         func() error { _, err := m.Lock(ctx); return err },
			"TryLock":      func() error { _, err := m.TryLock(ctx); return err },
			"Do":           func() error { return m.Do(ctx, func(context.Context) error { panic("called") }) },
			"Session":      func() error { _, err := c.Session(ctx); return err },
			"Hold.Check":   func() error { return h.Check(ctx) },
			"Hold.Multi":   func() error { _, err := h.Multi(ctx, &zk.DeleteRequest{Path: dir, Version: -1}); return err },
			"Hold.Unlock":  func() error { return h.Unlock(ctx) },
			"Hold.Err":     h.Err,
			"Hold.Context": func() error { return context.Cause(h.Context()) },
		} {
			err := call()
			require.ErrorIs(s, err, zklock.ErrClosed, name)
			require.NotErrorIs(s, err, zklock.ErrLost, name)
		}
		require.NoError(s, c.Close(), "twice")
		require.Equal(s, began, time.Now())
		require.Empty(s, s.srv.Children(dir))
		require.Empty(s, s.srv.Sessions())
	})
}

// scenario 41: Close meets calls that wait: all of them return, and nothing goes on.
func TestScenario41_CloseEndsTheCallsThatWait(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(map[bool]string{false: "connected", true: "without a server"}[down], func(t *testing.T) {
			simTest(t, func(s *sim) {
				idle, dir, c := simGoroutines(), s.dir("/locks/a"), s.client()
				h := s.lock(c.Mutex(dir))
				var calls []*simCall
				for range 20 {
					calls = append(calls, simGo(s.Context(), c.Mutex(dir).Lock))
				}
				synctest.Wait()
				if down {
					s.srv.Leader().Down()
					time.Sleep(time.Second)
				}
				began := time.Now()
				require.NoError(s, c.Close())
				require.LessOrEqual(s, time.Since(began), 2500*time.Millisecond)
				for _, call := range calls {
					require.True(s, call.over())
					require.ErrorIs(s, call.err, zklock.ErrClosed)
				}
				require.ErrorIs(s, h.Err(), zklock.ErrClosed)
				require.Equal(s, idle, simGoroutines())
			})
		})
	}
}

// unreachable are servers that never serve.
var unreachable = map[string]zktest.Fault{
	"connections are refused":      zktest.Refuse(),
	"handshakes get no answer":     zktest.Freeze(),
	"half a handshake is answered": zktest.Stall(7).Op(zktest.OpConnect),
	"handshakes are hung up on":    zktest.CloseBefore().Op(zktest.OpConnect),
	"answers are garbage": zktest.Garble(func([]byte) []byte {
		return []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
	}).Op(zktest.OpConnect),
}

// scenario 41: servers that are never reachable: Dial returns an error within its ctx, says which servers it tried,
// and leaves nothing running.
func TestScenario41_DialOfServersThatNeverAnswerReturnsWithinItsContext(t *testing.T) {
	for name, fault := range unreachable {
		for _, limit := range []time.Duration{0, 100 * time.Millisecond, 5 * time.Second, time.Minute} {
			t.Run(fmt.Sprintf("%s for %v", name, limit), func(t *testing.T) {
				simTest(t, func(s *sim) {
					f := s.follower()
					idle := simGoroutines()
					down := s.srv.Inject(fault)
					ctx, cancel := context.WithTimeout(s.Context(), limit)
					defer cancel()
					began := time.Now()
					c, err := zklock.Dial(ctx, s.srv.Addr()+","+f.Addr(), zklock.WithDialer(s.srv.Dial))
					require.Nil(s, c)
					require.ErrorIs(s, err, context.DeadlineExceeded)
					require.ErrorContains(s, err, s.srv.Addr())
					require.ErrorContains(s, err, f.Addr())
					require.Equal(s, limit, time.Since(began))
					down.Remove() // so that the server, too, learns what has ended
					s.until(3*time.Second, "nothing goes on", func() bool { return simGoroutines() == idle })
					time.Sleep(13 * time.Second)
					require.Empty(s, s.srv.Sessions(), "those of which no client has heard")
				})
			})
		}
	}
}

// scenario 41: servers that go and do not come back: calls return within their ctx, and say what they waited for.
func TestScenario41_ACallWithoutAServerReturnsWithinItsContext(t *testing.T) {
	for name, fault := range unreachable {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, c := s.dir("/locks/a"), s.client()
				s.srv.DropConnections()
				s.srv.Inject(fault)
				for _, limit := range []time.Duration{50 * time.Millisecond, 3 * time.Second, 2 * time.Minute} {
					for _, lock := range []func(*zklock.Mutex, context.Context) (*zklock.Hold, error){
						(*zklock.Mutex).Lock, (*zklock.Mutex).TryLock,
					} {
						ctx, cancel := context.WithTimeout(s.Context(), limit)
						began := time.Now()
						_, err := lock(c.Mutex(dir), ctx)
						cancel()
						require.ErrorIs(s, err, context.DeadlineExceeded)
						require.ErrorContains(s, err, s.srv.Addr(), "it says which server did not answer")
						require.Equal(s, limit, time.Since(began))
					}
				}
				began := time.Now()
				_, err := c.Mutex(dir, zklock.WithWait(7*time.Second)).Lock(s.Context())
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.NotErrorIs(s, err, zklock.ErrBusy, "nobody is known to be in the way")
				require.ErrorContains(s, err, s.srv.Addr())
				require.Equal(s, 7*time.Second, time.Since(began))
				require.Empty(s, s.srv.Children(dir))
			})
		})
	}
}

// scenario 41: a dialer that takes all the time that it is given keeps nobody longer than its ctx.
func TestScenario41_ADialerThatHangsKeepsNobodyBeyondItsContext(t *testing.T) {
	simTest(t, func(s *sim) {
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

// scenario 42: a ctx that is cancelled while nothing waits for it does not poison the next acquire.
func TestScenario42_ACancelWhileIdleDoesNotPoisonTheNextAcquire(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		id, m := c.id(), c.Mutex(dir)
		over, cancel := context.WithCancel(s.Context())
		cancel()
		for range 3 {
			_, err := m.Lock(over)
			require.ErrorIs(s, err, context.Canceled)
			_, err = m.TryLock(over)
			require.ErrorIs(s, err, context.Canceled)

			ctx, cancel := context.WithCancel(s.Context())
			h, err := m.Lock(ctx)
			require.NoError(s, err)
			cancel() // the call has returned: its ctx bounds the waiting and not the hold
			time.Sleep(time.Second)
			s.owned(c, h)
			require.NoError(s, h.Context().Err())
			s.unlock(h)

			ctx, cancel = context.WithCancel(s.Context())
			h, err = m.Lock(ctx)
			require.NoError(s, err)
			s.unlock(h)
			cancel()

			h = s.lock(m)
			waits, stop := context.WithCancel(s.Context())
			call := simGo(waits, m.Lock)
			require.False(s, call.over())
			stop()
			require.True(s, call.over())
			s.owned(c, h)
			s.unlock(h)
			require.Empty(s, s.srv.Children(dir))
		}
		h, err := m.TryLock(s.Context())
		require.NoError(s, err)
		s.owned(c, h)
		require.Equal(s, id, c.id())
	})
}

// scenario 43: a wait that is woken and sleeps again, again and again, keeps one absolute deadline.
func TestScenario43_AWaitThatIsWokenAgainAndAgainKeepsOneDeadline(t *testing.T) {
	const limit = 10 * time.Second
	for name, c := range map[string]struct {
		opts []zklock.LockOption
		ctx  time.Duration
		want error
	}{
		"the context's": {nil, limit, context.DeadlineExceeded},
		"WithWait's":    {[]zklock.LockOption{zklock.WithWait(limit)}, time.Hour, zklock.ErrBusy},
		"the earlier":   {[]zklock.LockOption{zklock.WithWait(time.Minute)}, limit, context.DeadlineExceeded},
	} {
		for disturbance, disturb := range map[string]func(s *sim, c *simClient, before string){
			"the one before it leaves": func(s *sim, c *simClient, before string) { require.NoError(s, s.srv.Delete(before)) },
			"the one before it is written to": func(s *sim, c *simClient, before string) {
				require.NoError(s, s.srv.SetData(before, nil))
			},
			"the connection drops": func(s *sim, c *simClient, before string) { s.srv.DropConnections() },
			"the session expires":  func(s *sim, c *simClient, before string) { require.NoError(s, s.srv.Expire(c.id())) },
			"its place is deleted": func(s *sim, c *simClient, before string) {
				line := contenders(s.srv.Children(path.Dir(before)))
				require.NoError(s, s.srv.Delete(path.Dir(before)+"/"+line[len(line)-1]))
			},
		} {
			t.Run(name+", and "+disturbance, func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, cl, other := s.dir("/locks/a"), s.client(), s.stranger()
					for i := range 9 {
						s.place(other, fmt.Sprintf("%s/lock-%010d", dir, i))
					}
					require.NoError(s, s.srv.SetSequence(dir, 9))
					ctx, cancel := context.WithTimeout(s.Context(), c.ctx)
					defer cancel()
					call := simGo(ctx, cl.Mutex(dir, c.opts...).Lock)
					for i := 8; i > 3; i-- {
						time.Sleep(1900 * time.Millisecond)
						require.False(s, call.over())
						disturb(s, cl, fmt.Sprintf("%s/lock-%010d", dir, i))
					}
					<-call.done
					require.ErrorIs(s, call.err, c.want)
					require.Equal(s, limit, call.spent)
					s.until(3*time.Second, "its place is gone", func() bool {
						return !strings.Contains(strings.Join(s.srv.Children(dir), " "), "_c_")
					})
				})
			})
		}
	}
}

// scenario 43, the other direction: the time of a wait that succeeds in the end is not cut short by being woken.
func TestScenario43_AWaitThatIsWokenAgainAndAgainLastsAsLongAsItMay(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c, other := s.dir("/locks/a"), s.client(), s.stranger()
		for i := range 9 {
			s.place(other, fmt.Sprintf("%s/lock-%010d", dir, i))
		}
		require.NoError(s, s.srv.SetSequence(dir, 9))
		call := simGo(s.Context(), c.Mutex(dir, zklock.WithWait(10*time.Second)).Lock)
		for i := 8; i >= 0; i-- {
			time.Sleep(1100 * time.Millisecond)
			require.False(s, call.over())
			require.NoError(s, other.Delete(s.Context(), fmt.Sprintf("%s/lock-%010d", dir, i), -1))
		}
		s.owned(c, call.get(s))
		require.Equal(s, 9900*time.Millisecond, call.spent)
	})
}
