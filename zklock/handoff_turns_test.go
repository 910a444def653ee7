package zklock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// turns releases one hold after the other, each after it was held for d, until a call of calls is not handed the lock at
// once. It returns how many were, and the call that was not.
func (s *sim) turns(h *zklock.Hold, calls []*simCall, d time.Duration) int {
	s.Helper()
	for i, c := range calls {
		time.Sleep(d)
		s.unlock(h)
		synctest.Wait()
		if !c.over() {
			return i
		}
		h = c.get(s)
	}
	return len(calls)
}

// drain releases what each call gets, in whatever order.
func (s *sim) drain(calls []*simCall) {
	s.Helper()
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() {
			<-c.done
			if c.err != nil {
				s.Error(c.err)
			} else if err := c.hold.Unlock(s.Context()); err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
}

func TestNHandOversAtMostOnceSomebodyWaitsOutside(t *testing.T) {
	for _, n := range []int{1, 2, 7} {
		for name, first := range map[string]bool{"who came before us": true, "who comes later": false} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				simTest(t, func(s *sim) {
					m := s.client().Mutex("/l", zklock.WithLocalHandoff(n))
					other := s.client().Mutex("/l")
					var h *zklock.Hold
					var calls []*simCall
					var outside *simCall
					if first { // it is in line when our turn comes
						front := s.lock(s.client().Mutex("/l"))
						calls = s.inLine(m, 20)
						outside = s.inLine(other, 1)[0]
						s.unlock(front)
						h, calls = calls[0].get(s), calls[1:]
					} else {
						h = s.lock(m)
						calls = s.inLine(m, 30)
						for range 10 { // while nobody waits outside they don't count
							s.unlock(h)
							h, calls = calls[0].get(s), calls[1:]
						}
						outside = s.inLine(other, 1)[0]
					}
					got := s.turns(h, calls, 0)
					require.Equal(s, n, got)
					theirs := outside.get(s)
					require.Greater(s, theirs.Token(), h.Token())
					s.unlock(theirs)
					for _, c := range calls[got:] {
						ours := c.get(s)
						require.Greater(s, ours.Token(), theirs.Token())
						s.unlock(ours)
					}
					s.clean("/l")
				})
			})
		}
	}
}

// Until the first list has been answered, handing on counts as if somebody waited outside, since somebody may.
func TestHandOversBeforeTheProcessHasLookedCount(t *testing.T) {
	for _, crowd := range []bool{true, false} {
		simTest(t, func(s *sim) {
			c := s.client()
			m := c.Mutex(s.dir("/l"), zklock.WithLocalHandoff(3))
			look := s.srv.Inject(zktest.Hold().Op(zktest.OpGetChildren2).Session(c.id()).After(1))
			h := s.lock(m)
			calls := s.inLine(m, 10)
			var outside *simCall
			if crowd {
				outside = s.inLine(s.client().Mutex("/l"), 1)[0]
			}
			got := s.turns(h, calls, 0)
			require.Equal(s, 3, got)
			time.Sleep(time.Second)
			require.False(s, calls[3].over(), "it has to look first")
			_, err := m.TryLock(s.Context())
			require.ErrorIs(s, err, zklock.ErrBusy)
			look.Remove()
			if crowd {
				theirs := outside.get(s)
				require.Greater(s, theirs.Token(), h.Token())
				s.unlock(theirs)
			}
			for _, c := range calls[3:] {
				ours := c.get(s)
				require.Equal(s, !crowd, ours.Token() == h.Token())
				s.unlock(ours)
			}
			s.clean("/l")
		})
	}
}

func TestASecondAtMostOnceSomebodyWaitsOutside(t *testing.T) {
	simTest(t, func(s *sim) {
		m := s.client().Mutex("/l", zklock.WithLocalHandoff(1_000_000))
		h := s.lock(m)
		calls := s.inLine(m, 50)
		outside := s.inLine(s.client().Mutex("/l"), 1)[0]
		seen := time.Now()
		got := s.turns(h, calls, 90*time.Millisecond)
		require.Equal(s, 11, got, "the last within the second, for 90 ms")
		require.Less(s, time.Since(seen), 1100*time.Millisecond)
		theirs := outside.get(s)
		s.unlock(theirs)
		for _, c := range calls[got:] {
			s.unlock(c.get(s))
		}
		s.clean("/l")
	})
}

func TestTwoProcessesTakeTurns(t *testing.T) {
	simTest(t, func(s *sim) {
		const n, rounds = 4, 40
		type turn struct {
			who   int
			token zklock.Token
		}
		var order []turn // guarded by the lock itself
		done := make(chan error, 100)
		for who := range 2 {
			m := s.client().Mutex("/l", zklock.WithLocalHandoff(n), zklock.WithIdleKeep(time.Second))
			for range 5 {
				go func() {
					for range rounds {
						h, err := m.Lock(s.Context())
						if err != nil {
							done <- err
							return
						}
						order = append(order, turn{who, h.Token()})
						time.Sleep(time.Millisecond)
						if err := h.Unlock(s.Context()); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
		}
		for range 10 {
			require.NoError(s, <-done)
		}
		require.Len(s, order, 10*rounds)
		last, longest, run := order[0], 1, 1
		for _, o := range order[1:300] { // later one of them may be alone
			require.GreaterOrEqual(s, o.token, last.token)
			require.Equal(s, o.who == last.who, o.token == last.token, "a token is never of two processes; and each turn is one znode")
			run++
			if o.who != last.who {
				run = 1
			}
			longest = max(longest, run)
			last = o
		}
		// The first of a turn, those before the other was seen to have queued again, and n more.
		require.LessOrEqual(s, longest, n+3)
		time.Sleep(2 * time.Second)
		s.clean("/l")
	})
}

func TestWhoeverQueuesOutsideMakesAKeptZnodeGoAtOnce(t *testing.T) {
	simTest(t, func(s *sim) {
		c, other := s.client(), s.client()
		m := c.Mutex("/l", zklock.WithLocalHandoff(100), zklock.WithIdleKeep(time.Minute))
		s.unlock(s.lock(m))
		time.Sleep(time.Second)
		kept := s.srv.Children("/l")
		require.Len(s, kept, 1)
		_, err := other.Mutex("/l").TryLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy, "TryLock does not queue")
		require.Equal(s, kept, s.srv.Children("/l"))

		start := time.Now()
		h := s.lock(other.Mutex("/l"))
		require.Zero(s, time.Since(start), "at once")
		synctest.Wait()
		require.Len(s, s.srv.Children("/l"), 1)
		require.Empty(s, s.watched(c.id()), "a process without a contender watches nothing")
		w := simGo(s.Context(), m.Lock)
		require.False(s, w.over())
		s.unlock(h)
		ours := w.get(s)
		require.Greater(s, ours.Token(), h.Token())
		s.unlock(ours)
		time.Sleep(61 * time.Second)
		s.clean("/l")
	})
}

// A contender that comes while the directory is being looked at is in the list, or makes the watch fire.
func TestAContenderThatComesWhileTheProcessLooks(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"before the list": zktest.Hold().Op(zktest.OpGetChildren2),
		"after the list":  zktest.HoldReply().Op(zktest.OpGetChildren2),
		"list is lost":    zktest.CloseAfter().Op(zktest.OpGetChildren2),
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				c := s.client()
				m := c.Mutex(s.dir("/l"), zklock.WithLocalHandoff(1), zklock.WithIdleKeep(time.Minute))
				in := s.srv.Inject(fault.Session(c.id()).Nth(2)) // the first is Lock's own
				h := s.lock(m)
				<-in.Hit()
				w := simGo(s.Context(), s.client().Mutex("/l").Lock)
				require.False(s, w.over())
				in.Remove()
				s.unlock(h)
				start := time.Now()
				s.unlock(w.get(s))
				require.Less(s, time.Since(start), 5*time.Second)
				s.clean("/l")
			})
		})
	}
}

func TestAContenderThatComesWhileTheHolderReconnects(t *testing.T) {
	simTest(t, func(s *sim) {
		c, other := s.client(), s.client()
		f := s.follower()
		other.at(f)
		m := c.Mutex("/l", zklock.WithLocalHandoff(1), zklock.WithIdleKeep(time.Minute))
		s.unlock(s.lock(m))
		time.Sleep(time.Second)
		other.session() // is moved with its next connection
		refuse := s.srv.Inject(zktest.Refuse())
		s.srv.DropConnections()
		synctest.Wait()
		refuse.Remove()
		hold := s.srv.Inject(zktest.Hold().Op(zktest.OpConnect).Session(c.id()))
		w := simGo(s.Context(), other.Mutex("/l").Lock)
		s.until(5*time.Second, "it queues", func() bool { return len(s.srv.Children("/l")) == 2 })
		hold.Remove()
		s.unlock(w.get(s))
		s.clean("/l")
	})
}

// On a server that is behind, the list may be old; its watch is as old.
func TestTheListOfALaggingServerMissesNobodyForGood(t *testing.T) {
	simTest(t, func(s *sim) {
		f := s.follower()
		c := s.client()
		c.at(f)
		s.srv.DropConnections()
		s.until(time.Minute, "moved", func() bool { return c.session().State() == session.Connected })
		m := c.Mutex("/l", zklock.WithLocalHandoff(2))
		other := s.client()
		h := s.lock(m)
		f.Lag(2)
		w := simGo(s.Context(), other.Mutex("/l").Lock)
		require.False(s, w.over())
		calls := s.inLine(m, 5)
		time.Sleep(100 * time.Millisecond)
		f.Lag(0)
		synctest.Wait()
		got := s.turns(h, calls, 0)
		require.Equal(s, 2, got)
		s.unlock(w.get(s))
		for _, c := range calls[got:] {
			s.unlock(c.get(s))
		}
		s.clean("/l")
	})
}

func TestOtherZnodesInTheDirectoryAreNobodyWhoWaits(t *testing.T) {
	simTest(t, func(s *sim) {
		m := s.client().Mutex("/l", zklock.WithLocalHandoff(1), zklock.WithIdleKeep(30*time.Second))
		h := s.lock(m)
		for i, name := range []string{"config", "lock", "_c_x", "lock-12", "x-lock-00000000001", "lease"} {
			require.NoError(s, s.srv.Create("/l/"+name, nil), i)
		}
		calls := s.inLine(m, 10)
		require.Equal(s, 10, s.turns(h, calls, 200*time.Millisecond))
		s.unlock(calls[9].get(s))
		time.Sleep(10 * time.Second)
		require.NoError(s, s.srv.Create("/l/another", nil)) // does not make the idle time begin anew either
		require.Len(s, s.srv.Children("/l"), 8)
		time.Sleep(20100 * time.Millisecond)
		require.Len(s, s.srv.Children("/l"), 7)
		require.Zero(s, s.srv.WatchCount())
	})
}

// Only the holder's process watches the directory; those that wait watch their predecessors.
func TestOnlyTheHoldersProcessWatchesTheDirectory(t *testing.T) {
	simTest(t, func(s *sim) {
		var clients []*simClient
		var calls []*simCall
		for range 10 {
			c := s.client()
			clients = append(clients, c)
			calls = append(calls, s.inLine(c.Mutex("/l", zklock.WithLocalHandoff(3)), 3)...)
		}
		time.Sleep(time.Second)
		for i, c := range clients {
			for _, p := range s.watched(c.id()) {
				require.NotEqual(s, "/l", p, "client %d", i)
			}
		}
		require.Len(s, s.srv.Children("/l"), 10)
		s.drain(calls)
		s.clean("/l")
	})
}

// A process that may not list the directory any more can't see who waits, and supposes that somebody does.
func TestAProcessThatCanNotLookHandsOnForAWhileOnly(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		m := c.Mutex("/l", zklock.WithLocalHandoff(2))
		h := s.lock(m)
		s.srv.Inject(zktest.Answer(zktest.CodeNoAuth).Op(zktest.OpGetChildren2).Session(c.id()).Once())
		calls := s.inLine(m, 6)
		s.unlock(h)
		token := h.Token()
		for i, c := range calls {
			next := c.get(s)
			if i == 2 { // and the second znode is handed on as often as its process likes: it could look
				require.Greater(s, next.Token(), token)
			} else {
				require.Equal(s, token, next.Token(), "waiter %d", i)
			}
			token = next.Token()
			s.unlock(next)
		}
		s.clean("/l")
	})
}

func TestALocalQueueIsForgottenWhenNobodyUsesIt(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		before := simGoroutines()
		for i := range 300 {
			p := fmt.Sprint("/l/", i%50)
			m := c.Mutex(p, zklock.WithLocalHandoff(i%3+1), zklock.WithIdleKeep(time.Second))
			h := s.lock(m)
			ctx, cancel := context.WithCancel(s.Context())
			w := simGo(ctx, m.Lock)
			require.False(s, w.over())
			cancel()
			require.True(s, w.over())
			s.unlock(h)
		}
		require.NotZero(s, zklock.LocalQueues(c.Client))
		time.Sleep(2 * time.Second)
		require.Zero(s, zklock.LocalQueues(c.Client))
		require.Zero(s, s.srv.WatchCount())
		require.Equal(s, before, simGoroutines())
	})
}
