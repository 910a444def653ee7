package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// What observers of an election see.

func TestObserversSeeEveryChangeOnceAndInOrder(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/e"), s.client(), s.client()
		view, second := s.observe(s.client().Election(dir)), s.observe(b.Election(dir))
		var want []string
		see := func(values ...string) {
			s.Helper()
			require.Equal(s, append([]string{}, values...), view.values())
			want = append(want, values...)
		}
		see("-")
		l := s.lead(a.Election(dir), "a")
		see("a")
		for i := range 5 {
			v := fmt.Sprint("a", i)
			require.NoError(s, l.Proclaim(s.Context(), []byte(v)))
			see(v)
		}
		require.NoError(s, l.Proclaim(s.Context(), []byte("a4")))
		see("a4") // the same value, proclaimed anew
		next := electCampaign(s.Context(), b.Election(dir), "b")
		see()
		require.NoError(s, l.Resign(s.Context()))
		see("-", "b")
		time.Sleep(time.Hour)
		see()
		require.NoError(s, next.win(s).Resign(s.Context()))
		see("-")
		require.NoError(s, s.lead(a.Election(dir), "a").Resign(s.Context()))
		synctest.Wait()
		require.Equal(s, want, second.values()[:len(want)], "and every observer does")
	})
}

func TestObserversSurviveDisconnectsAndTheEndOfTheirSession(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, watcher := s.dir("/e"), s.client(), s.client()
		view := s.observe(watcher.Election(dir))
		l := s.lead(a.Election(dir), "a")
		require.Equal(s, []string{"-", "a"}, view.values())
		for i := range 5 {
			s.srv.DropConnections()
			time.Sleep(2 * time.Second)
			require.Empty(s, view.values(), "nothing has changed")
			v := fmt.Sprint("a", i)
			require.NoError(s, l.Proclaim(s.Context(), []byte(v)))
			require.Equal(s, []string{v}, view.values())
			require.NoError(s, s.srv.Expire(watcher.id()))
			time.Sleep(5 * time.Second)
			require.Empty(s, view.values(), "nothing has changed")
		}
		// What changes while it is away it sees when it is back.
		old := watcher.id()
		cut := s.srv.Inject(zktest.Freeze().Session(old))
		require.NoError(s, l.Resign(s.Context()))
		s.lead(a.Election(dir), "a again")
		time.Sleep(30 * time.Second)
		cut.Remove()
		time.Sleep(5 * time.Second)
		require.NotEqual(s, old, watcher.id())
		require.Equal(s, []string{"-", "a again"}, view.values())
		require.Len(s, s.watched(watcher.id()), 1)
	})
}

func TestObserversSurviveAServerThatAnswersBadlyForAWhile(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"list refused":   zktest.Answer(zktest.CodeOperationTimeout).Op(zktest.OpGetChildren2),
		"watch refused":  zktest.Answer(zktest.CodeOperationTimeout).Op(zktest.OpExists),
		"read refused":   zktest.Answer(zktest.CodeOperationTimeout).Op(zktest.OpGetData),
		"list garbled":   electGarbage().Op(zktest.OpGetChildren2),
		"read garbled":   electGarbage().Op(zktest.OpGetData),
		"reply cut off":  zktest.Truncate(9).Op(zktest.OpGetData),
		"nothing at all": zktest.CloseBefore().Op(zktest.OpGetData, zktest.OpExists),
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, watcher, a := s.dir("/e"), s.client(), s.client()
				view := s.observe(watcher.Election(dir))
				s.srv.Inject(fault.Session(watcher.id()).Times(2))
				s.lead(a.Election(dir), "a")
				time.Sleep(time.Minute)
				require.Equal(s, []string{"-", "a"}, view.values())
			})
		})
	}
}

func TestObserversOfADirectoryThatComesAndGoes(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a := "/no/such/directory", s.client()
		view := s.observe(s.client().Election(dir))
		time.Sleep(time.Minute)
		require.Equal(s, []string{"-"}, view.values())
		for i := range 3 {
			v := fmt.Sprint("a", i)
			l := s.lead(a.Election(dir), v)
			require.Equal(s, []string{v}, view.values())
			s.remove(dir, true)
			require.Equal(s, []string{"-"}, view.values())
			s.until(time.Second, "the leader hears of it", func() bool { return l.Err() != nil })
		}
		s.dir(dir + "2") // beside it
		require.NoError(s, s.srv.Create(dir, nil))
		require.NoError(s, s.srv.Create(dir+"/something", nil))
		require.Empty(s, view.values(), "no candidate")
		s.lead(a.Election(dir), "last")
		require.Equal(s, []string{"last"}, view.values())
	})
}

func TestObservingEndsWithItsContextAndSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(s *sim, v *electView, c *simClient)
		want error
	}{
		"ctx":              {func(_ *sim, v *electView, _ *simClient) { v.stop() }, context.Canceled},
		"client closed":    {func(s *sim, _ *electView, c *simClient) { require.NoError(s, c.Close()) }, zklock.ErrClosed},
		"without a server": {func(s *sim, v *electView, _ *simClient) { s.srv.Leader().Down(); v.stop() }, context.Canceled},
		"between two sessions": {func(s *sim, v *electView, c *simClient) {
			s.srv.Leader().Down()
			time.Sleep(30 * time.Second)
			v.stop()
		}, context.Canceled},
		"with the session": {func(s *sim, v *electView, c *simClient) {
			if err := s.srv.Expire(c.id()); err != nil {
				s.Error(err)
			}
			v.stop()
		}, context.Canceled},
	} {
		for _, leads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, led %v", name, leads), func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, a, watcher := s.dir("/e"), s.client(), s.client()
					if leads {
						s.lead(a.Election(dir), "a")
					}
					view := s.observe(watcher.Election(dir))
					began := time.Now()
					c.end(s, view, watcher)
					took := time.Since(began)
					<-view.done
					require.Equal(s, took, time.Since(began), "it ends at once")
					require.ErrorIs(s, view.err, c.want)
					s.srv.Leader().Up()
				})
			})
		}
	}
}

// The body of the loop outlives the session, and then ends ctx: the last error is ctx's.
func TestObservingEndsWithItsContextsErrorWhateverElseHasEnded(t *testing.T) {
	for range 20 { // which of two ends is seen first is left to chance
		simTest(t, func(s *sim) {
			dir, watcher := s.dir("/e"), s.client()
			s.lead(s.client().Election(dir), "a")
			ctx, cancel := context.WithCancel(s.Context())
			defer cancel()
			var last error
			for _, err := range watcher.Election(dir).Observe(ctx) {
				if last = err; err == nil {
					require.NoError(s, s.srv.Expire(watcher.id()))
					synctest.Wait()
					cancel()
				}
			}
			require.ErrorIs(s, last, context.Canceled)
		})
	}
}

func TestBreakingOutOfObservingLeavesNothing(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, watcher := s.dir("/e"), s.client(), s.client()
		idle := simGoroutines()
		leave := func(why string, f func()) {
			s.Helper()
			f()
			synctest.Wait()
			require.Empty(s, s.watched(watcher.id()), why)
			require.Equal(s, idle, simGoroutines(), why)
		}
		first := func() {
			for range watcher.Election(dir).Observe(s.Context()) {
				break
			}
		}
		leave("at no leader", first)
		l := s.lead(a.Election(dir), "a")
		time.Sleep(time.Second)
		idle = simGoroutines()
		leave("at a leader", first)
		leave("at a change", func() {
			n := 0
			for range watcher.Election(dir).Observe(s.Context()) {
				if n++; n == 2 {
					break
				}
				require.NoError(s, l.Proclaim(s.Context(), []byte("b")))
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
		require.Equal(s, 1, s.srv.WatchCount(), "the leader's own, on itself")
	})
}

// A hundred observers, ten candidates: a change of leader wakes the observers and one candidate, and a candidate that
// comes or goes further back wakes no observer.
func TestObserversDoNotWakeCandidatesNorCandidatesObservers(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, first := s.dir("/e"), s.client()
		l := s.lead(first.Election(dir), "first")
		var candidates, observers []*simClient
		var calls []*electCall
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		for range 10 {
			c := s.client()
			candidates = append(candidates, c)
			calls = append(calls, electCampaign(ctx, c.Election(dir), "next"))
			synctest.Wait()
		}
		for range 10 {
			c := s.client()
			observers = append(observers, c)
			s.observe(c.Election(dir))
		}
		time.Sleep(time.Second)
		count := func(clients []*simClient) (sum int) {
			synctest.Wait()
			for _, c := range clients {
				sum += s.notified(c.id())
			}
			return sum
		}
		quit, quitting := context.WithCancel(s.Context())
		defer quitting()
		last := electCampaign(quit, s.client().Election(dir), "last")
		require.False(s, last.over())
		quitting()
		require.True(s, last.over())
		require.True(s, errors.Is(last.err, context.Canceled))
		require.Zero(s, count(observers), "candidates come and go behind the leader")
		require.Zero(s, count(candidates))

		require.NoError(s, l.Resign(s.Context()))
		calls[0].win(s)
		require.Equal(s, 1, count(candidates))
		require.Equal(s, len(observers), count(observers))
		cancel()
		for _, c := range calls[1:] {
			<-c.done
		}
	})
}

// An observer may read too little to know whether it would be notified: then it looks again from time to time.
func TestAnObserverThatMayNotReadALeadersLongDataSeesItsEnd(t *testing.T) {
	simTest(t, func(s *sim) {
		alice, bob := s.client(zklock.WithAuth("digest", []byte("alice:a"))), s.client()
		require.NoError(s, s.srv.Create("/e", nil))
		node, err := alice.session().Create(s.Context(), "/e/x-lock-0000000007", make([]byte, recipe.MaxData+1), session.Ephemeral,
			[]zk.ACL{{Perms: zk.PermAll, Scheme: "auth"}})
		require.NoError(s, err)
		view := s.observe(bob.Election("/e"))
		time.Sleep(time.Hour)
		require.Equal(s, []string{""}, view.values(), "a leader without a value")
		require.NoError(s, alice.session().Delete(s.Context(), node.Path, -1))
		time.Sleep(time.Minute)
		require.Equal(s, []string{"-"}, view.values())
	}, zktest.WithVersion(zktest.Version38)) // later versions refuse the watch
}
