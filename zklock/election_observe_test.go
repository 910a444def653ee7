package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/zktest/fault"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Tests of what observers of an election see.

func TestObserversSeeEveryChangeOnceAndInOrder(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/e"), s.Client(), s.Client()
		view, second := observe(s, s.Client().Election(dir)), observe(s, b.Election(dir))
		var want []string
		see := func(values ...string) {
			s.Helper()
			require.Equal(s, append([]string{}, values...), view.values())
			want = append(want, values...)
		}
		see("-")
		l := lead(s, a.Election(dir), "a")
		see("a")
		for i := range 5 {
			v := fmt.Sprint("a", i)
			require.NoError(s, a.Election(dir).Proclaim(s.Context(), l, []byte(v)))
			see(v)
		}
		require.NoError(s, a.Election(dir).Proclaim(s.Context(), l, []byte("a4")))
		see("a4") // the same value, proclaimed anew
		next := campaign(s.Context(), b.Election(dir), "b")
		see()
		require.NoError(s, l.Unlock())
		see("-", "b")
		time.Sleep(locktest.LongTime)
		see()
		require.NoError(s, next.Get(s).Unlock())
		see("-")
		require.NoError(s, lead(s, a.Election(dir), "a").Unlock())
		synctest.Wait()
		require.Equal(s, want, second.values()[:len(want)], "and every observer does")
	})
}

// Scenario 78: whatever an observer is told of a change is lost.
func TestScenario78_AnObserverThatIsNotNotifiedLooksAgain(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, onlooker := s.Dir("/e"), s.Client(), s.Client()
		view := observe(s, onlooker.Election(dir))
		require.Equal(s, []string{"-"}, view.values())
		s.Server.Inject(fault.DropReply().Op(fault.OpNotify).Session(onlooker.SessionID()))
		sees := func(within time.Duration, want ...string) {
			s.Helper()
			began, seen := time.Now(), []string{}
			s.Until(within, fmt.Sprint(want), func() bool {
				seen = append(seen, view.values()...)
				return len(seen) >= len(want)
			})
			require.Equal(s, want, seen)
			require.LessOrEqual(s, time.Since(began), within)
		}
		l := lead(s, a.Election(dir), "a")
		sees(10*time.Second, "a")
		require.NoError(s, a.Election(dir).Proclaim(s.Context(), l, []byte("b")))
		sees(20*time.Second, "b")
		require.NoError(s, l.Unlock())
		sees(40*time.Second, "-")
		l = lead(s, a.Election(dir), "c")
		sees(time.Minute, "c")
		require.NoError(s, l.Unlock())
		require.NoError(s, lead(s, a.Election(dir), "d").Unlock())
		sees(time.Minute, "-")
	})
}

func TestObserversSurviveDisconnectsAndTheEndOfTheirSession(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, watcher := s.Dir("/e"), s.Client(), s.Client()
		view := observe(s, watcher.Election(dir))
		l := lead(s, a.Election(dir), "a")
		require.Equal(s, []string{"-", "a"}, view.values())
		for i := range 5 {
			s.Server.DropConnections()
			time.Sleep(2 * time.Second)
			require.Empty(s, view.values(), "nothing has changed")
			v := fmt.Sprint("a", i)
			require.NoError(s, a.Election(dir).Proclaim(s.Context(), l, []byte(v)))
			require.Equal(s, []string{v}, view.values())
			require.NoError(s, s.Server.Expire(watcher.SessionID()))
			time.Sleep(5 * time.Second)
			require.Empty(s, view.values(), "nothing has changed")
		}
		// It sees what has changed while it was disconnected when it is connected again.
		old := watcher.SessionID()
		cut := s.Server.Inject(fault.Freeze().Session(old))
		require.NoError(s, l.Unlock())
		lead(s, a.Election(dir), "a again")
		time.Sleep(30 * time.Second)
		cut.Remove()
		time.Sleep(5 * time.Second)
		require.NotEqual(s, old, watcher.SessionID())
		require.Equal(s, []string{"-", "a again"}, view.values())
		require.Len(s, s.Watched(watcher.SessionID()), 1)
	})
}

func TestObserversSurviveAServerThatAnswersBadlyForAWhile(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"list refused":   fault.Answer(fault.CodeOperationTimeout).Op(fault.OpGetChildren2),
		"watch refused":  fault.Answer(fault.CodeOperationTimeout).Op(fault.OpExists),
		"read refused":   fault.Answer(fault.CodeOperationTimeout).Op(fault.OpGetData),
		"list garbled":   garbledLeader().Op(fault.OpGetChildren2),
		"read garbled":   garbledLeader().Op(fault.OpGetData),
		"reply cut off":  fault.Truncate(9).Op(fault.OpGetData),
		"nothing at all": fault.CloseBefore().Op(fault.OpGetData, fault.OpExists),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, watcher, a := s.Dir("/e"), s.Client(), s.Client()
				view := observe(s, watcher.Election(dir))
				s.Server.Inject(failure.Session(watcher.SessionID()).Times(2))
				lead(s, a.Election(dir), "a")
				time.Sleep(time.Minute)
				require.Equal(s, []string{"-", "a"}, view.values())
			})
		})
	}
}

func TestObserversOfADirectoryThatComesAndGoes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a := "/no/such/directory", s.Client()
		view := observe(s, s.Client().Election(dir))
		time.Sleep(time.Minute)
		require.Equal(s, []string{"-"}, view.values())
		for i := range 3 {
			v := fmt.Sprint("a", i)
			l := lead(s, a.Election(dir), v)
			require.Equal(s, []string{v}, view.values())
			s.RemoveDir(dir, true)
			require.Equal(s, []string{"-"}, view.values())
			s.Until(time.Second, "the leader hears of it", func() bool { return l.Err() != nil })
		}
		s.Dir(dir + "2") // beside it
		require.NoError(s, s.Server.Create(dir, nil))
		require.NoError(s, s.Server.Create(dir+"/something", nil))
		require.Empty(s, view.values(), "no candidate")
		lead(s, a.Election(dir), "last")
		require.Equal(s, []string{"last"}, view.values())
	})
}

func TestObservingEndsWithItsContextAndSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(s *locktest.Sim, v *view, c *locktest.Client)
		want error
	}{
		"ctx":              {func(_ *locktest.Sim, v *view, _ *locktest.Client) { v.stop() }, context.Canceled},
		"client closed":    {func(s *locktest.Sim, _ *view, c *locktest.Client) { require.NoError(s, c.Close()) }, zklock.ErrClosed},
		"without a server": {func(s *locktest.Sim, v *view, _ *locktest.Client) { s.Server.Leader().Down(); v.stop() }, context.Canceled},
		"between two sessions": {func(s *locktest.Sim, v *view, c *locktest.Client) {
			s.Server.Leader().Down()
			time.Sleep(30 * time.Second)
			v.stop()
		}, context.Canceled},
		"with the session": {func(s *locktest.Sim, v *view, c *locktest.Client) {
			if err := s.Server.Expire(c.SessionID()); err != nil {
				s.Error(err)
			}
			v.stop()
		}, context.Canceled},
	} {
		for _, leads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, led %v", name, leads), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, a, watcher := s.Dir("/e"), s.Client(), s.Client()
					if leads {
						lead(s, a.Election(dir), "a")
					}
					view := observe(s, watcher.Election(dir))
					began := time.Now()
					c.end(s, view, watcher)
					took := time.Since(began)
					<-view.done
					require.Equal(s, took, time.Since(began), "it ends at once")
					require.ErrorIs(s, view.err, c.want)
					s.Server.Leader().Up()
				})
			})
		}
	}
}

func TestBreakingOutOfObservingLeavesNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, watcher := s.Dir("/e"), s.Client(), s.Client()
		idle := locktest.Goroutines()
		leave := func(why string, f func()) {
			s.Helper()
			f()
			synctest.Wait()
			require.Empty(s, s.Watched(watcher.SessionID()), why)
			require.Equal(s, idle, locktest.Goroutines(), why)
		}
		first := func() {
			for range watcher.Election(dir).Observe(s.Context()) {
				break
			}
		}
		leave("at no leader", first)
		l := lead(s, a.Election(dir), "a")
		time.Sleep(time.Second)
		idle = locktest.Goroutines()
		leave("at a leader", first)
		leave("at a change", func() {
			n := 0
			for range watcher.Election(dir).Observe(s.Context()) {
				if n++; n == 2 {
					break
				}
				require.NoError(s, a.Election(dir).Proclaim(s.Context(), l, []byte("b")))
			}
		})
		leave("by a panic", func() {
			defer func() { require.Equal(s, "oops", recover()) }()
			for range watcher.Election(dir).Observe(s.Context()) {
				panic("oops")
			}
		})
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		leave("by the end of ctx", func() {
			for _, err := range watcher.Election(dir).Observe(ctx) {
				if cancel(); err != nil {
					require.ErrorIs(s, err, context.Canceled)
				}
			}
		})
		for range 50 {
			first()
		}
		synctest.Wait()
		require.Equal(s, 1, s.Server.WatchCount(), "the leader's own, on itself")
	})
}

// A hundred observers, ten candidates: a change of leader wakes the observers and one candidate. A candidate that enters or leaves
// further back in line wakes no observer.
func TestObserversDoNotWakeCandidatesNorCandidatesObservers(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, first := s.Dir("/e"), s.Client()
		l := lead(s, first.Election(dir), "first")
		var candidates, observers []*locktest.Client
		var calls []*locktest.Call
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		for range 10 {
			c := s.Client()
			candidates = append(candidates, c)
			calls = append(calls, campaign(ctx, c.Election(dir), "next"))
			synctest.Wait()
		}
		for range 10 {
			c := s.Client()
			observers = append(observers, c)
			observe(s, c.Election(dir))
		}
		time.Sleep(time.Second)
		count := func(clients []*locktest.Client) (sum int) {
			synctest.Wait()
			for _, c := range clients {
				sum += s.Notified(c.SessionID())
			}
			return sum
		}
		quit, quitting := context.WithCancel(s.Context())
		defer quitting()
		last := campaign(quit, s.Client().Election(dir), "last")
		require.False(s, last.Over())
		quitting()
		require.True(s, last.Over())
		require.True(s, errors.Is(last.Err, context.Canceled))
		require.Zero(s, count(observers), "candidates come and go behind the leader")
		require.Zero(s, count(candidates))

		require.NoError(s, l.Unlock())
		calls[0].Get(s)
		require.Equal(s, 1, count(candidates))
		require.Equal(s, len(observers), count(observers))
		cancel()
		for _, c := range calls[1:] {
			<-c.Done
		}
	})
}
