package zklock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/zktest/fault"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// turns releases one hold after the other, each after d, until one of calls does not get the lock at once. It returns how many got
// it at once, and the call that did not.
func turns(s *locktest.Sim, h *zklock.Hold, calls []*locktest.Call, d time.Duration) int {
	s.Helper()
	for i, c := range calls {
		time.Sleep(d)
		s.Unlock(h)
		synctest.Wait()
		if !c.Over() {
			return i
		}
		h = c.Get(s)
	}
	return len(calls)
}

// drain releases what each call gets, in whatever order.
func drain(s *locktest.Sim, calls []*locktest.Call) {
	s.Helper()
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() {
			<-c.Done
			if c.Err != nil {
				s.Error(c.Err)
			} else if err := c.Hold.Unlock(); err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
}

// Scenario 78: the event that another process waits is lost.
func TestScenario78_HandOversEndThoughTheEventOfAContenderOutsideIsLost(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.Mutex("/l", zklock.WithHandoffs(1))
		h := s.Lock(m)
		calls := inLine(s, m, 30)
		require.NoError(s, h.Unlock())
		h, calls = calls[0].Get(s), calls[1:]
		s.Server.Inject(fault.DropReply().Op(fault.OpNotify).Session(c.SessionID()))
		outside := inLine(s, s.Client().Mutex("/l"), 1)[0]
		n := turns(s, h, calls, time.Second)
		require.LessOrEqual(s, n, 12)
		s.Unlock(outside.Get(s))
		drain(s, calls[n:])
	})
}

func TestNHandOversAtMostOnceAContenderWaitsOutside(t *testing.T) {
	for _, n := range []int{1, 2, 7} {
		for name, first := range map[string]bool{"who came before us": true, "who comes later": false} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					m := s.Client().Mutex("/l", zklock.WithHandoffs(n))
					other := s.Client().Mutex("/l")
					var h *zklock.Hold
					var calls []*locktest.Call
					var outside *locktest.Call
					if first { // it is in line when our turn comes
						front := s.Lock(s.Client().Mutex("/l"))
						calls = inLine(s, m, 20)
						outside = inLine(s, other, 1)[0]
						s.Unlock(front)
						h, calls = calls[0].Get(s), calls[1:]
					} else {
						h = s.Lock(m)
						calls = inLine(s, m, 30)
						for range 10 { // they do not count while no other process waits
							s.Unlock(h)
							h, calls = calls[0].Get(s), calls[1:]
						}
						outside = inLine(s, other, 1)[0]
					}
					got := turns(s, h, calls, 0)
					require.Equal(s, n, got)
					theirs := outside.Get(s)
					require.Greater(s, theirs.Token(), h.Token())
					s.Unlock(theirs)
					for _, c := range calls[got:] {
						ours := c.Get(s)
						require.Greater(s, ours.Token(), theirs.Token())
						s.Unlock(ours)
					}
					clean(s, "/l")
				})
			})
		}
	}
}

// Until the first list is answered, hand-overs count as if another process waited, since one may.
func TestHandOversBeforeTheProcessHasLookedCount(t *testing.T) {
	for _, crowd := range []bool{true, false} {
		locktest.Simulate(t, func(s *locktest.Sim) {
			c := s.Client()
			m := c.Mutex(s.Dir("/l"), zklock.WithHandoffs(3))
			look := s.Server.Inject(fault.Hold().Op(fault.OpGetChildren2).Session(c.SessionID()).After(1))
			h := s.Lock(m)
			calls := inLine(s, m, 10)
			var outside *locktest.Call
			if crowd {
				outside = inLine(s, s.Client().Mutex("/l"), 1)[0]
			}
			got := turns(s, h, calls, 0)
			require.Equal(s, 3, got)
			time.Sleep(time.Second)
			require.False(s, calls[3].Over(), "it has to look first")
			_, _, err := m.TryLock(s.Context())
			require.ErrorIs(s, err, zklock.ErrBusy)
			look.Remove()
			if crowd {
				theirs := outside.Get(s)
				require.Greater(s, theirs.Token(), h.Token())
				s.Unlock(theirs)
			}
			for _, c := range calls[3:] {
				ours := c.Get(s)
				require.Equal(s, !crowd, ours.Token() == h.Token())
				s.Unlock(ours)
			}
			clean(s, "/l")
		})
	}
}

func TestASecondAtMostOnceAContenderWaitsOutside(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l", zklock.WithHandoffs(1_000_000))
		h := s.Lock(m)
		calls := inLine(s, m, 50)
		outside := inLine(s, s.Client().Mutex("/l"), 1)[0]
		seen := time.Now()
		got := turns(s, h, calls, 90*time.Millisecond)
		require.Equal(s, 11, got, "the last within the second, for 90 ms")
		require.Less(s, time.Since(seen), 1100*time.Millisecond)
		theirs := outside.Get(s)
		s.Unlock(theirs)
		for _, c := range calls[got:] {
			s.Unlock(c.Get(s))
		}
		clean(s, "/l")
	})
}

// A contender that comes while the directory is being looked at is in the list, or makes the watch fire.
func TestAContenderThatComesWhileTheProcessLooks(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"before the list": fault.Hold().Op(fault.OpGetChildren2),
		"after the list":  fault.HoldReply().Op(fault.OpGetChildren2),
		"list is lost":    fault.CloseAfter().Op(fault.OpGetChildren2),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				m := c.Mutex(s.Dir("/l"), zklock.WithHandoffs(1))
				in := s.Server.Inject(failure.Session(c.SessionID()).Nth(2)) // the first list is that of Lock
				h := s.Lock(m)
				calls := inLine(s, m, 5)
				<-in.Hit()
				w := locktest.Go(s.Context(), s.Client().Mutex("/l").Lock)
				require.False(s, w.Over())
				in.Remove()
				time.Sleep(100 * time.Millisecond)
				got := turns(s, h, calls, 0)
				require.Equal(s, 1, got, "hand-overs while another process waits")
				s.Unlock(w.Get(s))
				for _, c := range calls[got:] {
					s.Unlock(c.Get(s))
				}
				clean(s, "/l")
			})
		})
	}
}

func TestAContenderThatComesWhileTheHolderReconnects(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, other := s.Client(), s.Client()
		f := s.Follower()
		other.LeadTo(f)
		m := c.Mutex("/l", zklock.WithHandoffs(1))
		h := s.Lock(m)
		calls := inLine(s, m, 5) // so the process watches
		time.Sleep(time.Second)
		other.Current() // is moved with its next connection
		refuse := s.Server.Inject(fault.Refuse())
		s.Server.DropConnections()
		synctest.Wait()
		refuse.Remove()
		hold := s.Server.Inject(fault.Hold().Op(fault.OpConnect).Session(c.SessionID()))
		w := locktest.Go(s.Context(), other.Mutex("/l").Lock)
		s.Until(5*time.Second, "it queues", func() bool { return len(s.Server.Children("/l")) == 2 })
		hold.Remove()
		time.Sleep(100 * time.Millisecond)
		got := turns(s, h, calls, 0)
		require.Equal(s, 1, got, "hand-overs while another process waits")
		s.Unlock(w.Get(s))
		for _, c := range calls[got:] {
			s.Unlock(c.Get(s))
		}
		clean(s, "/l")
	})
}

// On a server that lags behind the list may be old, but its watch is from the same state.
func TestTheListOfALaggingServerMissesNoContenderForGood(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		f := s.Follower()
		c := s.Client()
		c.LeadTo(f)
		s.Server.DropConnections()
		s.Until(time.Minute, "moved", func() bool { return c.Current().State() == session.Connected })
		m := c.Mutex("/l", zklock.WithHandoffs(2))
		other := s.Client()
		h := s.Lock(m)
		f.Lag(2)
		w := locktest.Go(s.Context(), other.Mutex("/l").Lock)
		require.False(s, w.Over())
		calls := inLine(s, m, 5)
		time.Sleep(100 * time.Millisecond)
		f.Lag(0)
		synctest.Wait()
		got := turns(s, h, calls, 0)
		require.Equal(s, 2, got)
		s.Unlock(w.Get(s))
		for _, c := range calls[got:] {
			s.Unlock(c.Get(s))
		}
		clean(s, "/l")
	})
}

// Only the holder's process watches the directory; those that wait watch their predecessors.
func TestOnlyTheHoldersProcessWatchesTheDirectory(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		var clients []*locktest.Client
		var calls []*locktest.Call
		for range 10 {
			c := s.Client()
			clients = append(clients, c)
			calls = append(calls, inLine(s, c.Mutex("/l", zklock.WithHandoffs(3)), 3)...)
		}
		time.Sleep(time.Second)
		for i, c := range clients {
			for _, p := range s.Watched(c.SessionID()) {
				require.NotEqual(s, "/l", p, "client %d", i)
			}
		}
		require.Len(s, s.Server.Children("/l"), 10)
		drain(s, calls)
		clean(s, "/l")
	})
}

// A process that may no longer list the directory assumes that another process waits.
func TestAProcessThatCanNotLookHandsOnForAWhileOnly(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.Mutex("/l", zklock.WithHandoffs(2))
		h := s.Lock(m)
		s.Server.Inject(fault.Answer(fault.CodeNoAuth).Op(fault.OpGetChildren2).Session(c.SessionID()).Once())
		calls := inLine(s, m, 6)
		s.Unlock(h)
		token := h.Token()
		for i, c := range calls {
			next := c.Get(s)
			if i == 2 { // the second znode is handed on without limit, because its process could list
				require.Greater(s, next.Token(), token)
			} else {
				require.Equal(s, token, next.Token(), "waiter %d", i)
			}
			token = next.Token()
			s.Unlock(next)
		}
		clean(s, "/l")
	})
}
