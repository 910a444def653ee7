package zklock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// curatorRevokes does what Curator's Revoker does.
func curatorRevokes(s *locktest.Sim, h *zklock.Hold) {
	s.Helper()
	require.NoError(s, s.Server.SetData(h.Nodes()[0], []byte("__REVOKE__")))
}

func received(h *zklock.Hold) (r zklock.ReleaseRequest, ok bool) {
	synctest.Wait()
	select {
	case r = <-h.Asked():
		return r, true
	default:
		return r, false
	}
}

func askedLocks(c *locktest.Client) map[string]locktest.Acquire {
	campaign := func(ctx context.Context) (*zklock.Hold, error) {
		l, err := c.Election("/l").Campaign(ctx, []byte("v"))
		if err != nil {
			return nil, err
		}
		return l.Hold, nil
	}
	return map[string]locktest.Acquire{
		"mutex": c.Mutex("/l", zklock.WithOwner("billing")).Lock, "reader": c.RWMutex("/l").RLock, "writer": c.RWMutex("/l").Lock,
		"semaphore": locktest.Permits(c.Semaphore("/l", 1), 1), "several": c.MultiLock([]string{"/m", "/l"}).Lock,
		"election": campaign, "handed on": c.Mutex("/l", zklock.WithLocalHandoff(3)).Lock,
	}
}

// For every kind of lock, free or waited for, and however young the hold is: the request arrives with its sender and its reason,
// and Queue shows to all clients that it was made.
func TestAHolderHearsThatItIsAskedToLetGo(t *testing.T) {
	for _, name := range []string{"mutex", "reader", "writer", "semaphore", "several", "election", "handed on"} {
		for _, waited := range []bool{false, true} {
			for _, age := range []time.Duration{0, 100 * time.Millisecond, time.Minute} {
				t.Run(name, func(t *testing.T) {
					locktest.Simulate(t, func(s *locktest.Sim) {
						told := make(chan zklock.AskedToReleaseInfo, 10)
						c := s.Client(zklock.WithHooks(zklock.Hooks{AskedToRelease: func(i zklock.AskedToReleaseInfo) { told <- i }}))
						lock := askedLocks(c)[name]
						if waited {
							other := s.Take(askedLocks(s.Client())[map[bool]string{true: "writer", false: name}[name == "reader"]])
							call := s.Start(lock)
							time.Sleep(time.Second)
							s.Unlock(other)
							lock = func(context.Context) (*zklock.Hold, error) { return call.Get(s), nil }
						}
						h := s.Take(lock)
						time.Sleep(age)
						_, early := received(h)
						require.False(s, early)
						require.NoError(s, s.Client().Ask(s.Context(), "/l", h.Token(), "deploying"))
						time.Sleep(time.Second)
						r, ok := received(h)
						require.True(s, ok, "waited %v, held for %v", waited, age)
						require.Equal(s, "deploying", r.Why)
						require.NotEmpty(s, r.By)
						require.WithinDuration(s, time.Now(), r.At, 2*time.Second)
						require.NoError(s, h.Err(), "it is a wish")
						line, err := c.Queue(s.Context(), "/l")
						require.NoError(s, err)
						require.Equal(s, &r, line[0].Asked)
						require.NotEmpty(s, line[0].Host, "what it said of itself stays")

						require.NoError(s, s.Client().Ask(s.Context(), "/l", h.Token(), "once more"))
						require.NoError(s, s.Client().Ask(s.Context(), "/l", h.Token(), "at last"))
						time.Sleep(time.Second)
						r, _ = received(h)
						require.Equal(s, "at last", r.Why)
						_, ok = received(h)
						require.False(s, ok)
						s.Unlock(h)
						one := <-told
						require.Equal(s, "deploying", one.Why)
						require.Equal(s, h.Token(), one.Token)
						require.NotEmpty(s, told)
					})
				})
			}
		}
	}
}

// In both directions with Curator, whose Revoker sends neither a name nor a reason.
func TestCuratorsRevokerAndOursUnderstandEachOther(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		h := s.Lock(c.Mutex("/l"))
		time.Sleep(time.Second)
		curatorRevokes(s, h)
		r, ok := received(h)
		require.True(s, ok)
		require.Empty(s, r.By+r.Why)
		s.Unlock(h)

		other := s.Stranger()
		node, err := other.Create(s.Context(), "/l/_c_0b5f5f5e-0000-0000-0000-000000000000-lock-", nil, session.EphemeralSequential, session.WorldACL())
		require.NoError(s, err)
		line, err := c.Queue(s.Context(), "/l")
		require.NoError(s, err)
		require.Nil(s, line[0].Asked)
		require.NoError(s, c.Ask(s.Context(), "/l", line[0].Token, "it can't hear why"))
		n, _ := s.Server.Node(node.Path)
		require.Equal(s, "__REVOKE__", string(n.Data))
		line, err = c.Queue(s.Context(), "/l")
		require.NoError(s, err)
		require.NotNil(s, line[0].Asked)
		require.Empty(s, line[0].Owner)
	})
}

// A contender that was asked while it waited is notified when it holds.
func TestAWaiterThatIsAskedToLetGoHearsOfItWhenItHolds(t *testing.T) {
	for _, name := range []string{"mutex", "writer", "semaphore", "several", "election", "handed on"} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				first := s.Take(askedLocks(s.Client())[name])
				c := s.Client()
				call := s.Start(askedLocks(c)[name])
				time.Sleep(time.Second)
				line, err := c.Queue(s.Context(), "/l")
				require.NoError(s, err)
				require.NoError(s, c.Ask(s.Context(), "/l", line[1].Token, "give up"))
				time.Sleep(time.Second)
				s.Unlock(first)
				h := call.Get(s)
				time.Sleep(time.Second)
				r, ok := received(h)
				require.True(s, ok)
				require.Equal(s, "give up", r.Why)
			})
		})
	}
}

// With local handoff a process stops handing its znode on when it is asked to release the lock.
func TestAProcessThatIsAskedToLetGoHandsOnNoMore(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, other := s.Client(), s.Client()
		m := c.Mutex("/l", zklock.WithLocalHandoff(1000), zklock.WithIdleKeep(time.Minute))
		h := s.Lock(m)
		next := s.Start(m.Lock)
		time.Sleep(time.Second)
		require.NoError(s, other.Ask(s.Context(), "/l", h.Token(), ""))
		synctest.Wait()
		call := s.Start(other.Mutex("/l").Lock)
		synctest.Wait()
		s.Unlock(h)
		s.Unlock(call.Get(s))
		h = next.Get(s)
		s.Unlock(h)
		time.Sleep(time.Second)
		require.Len(s, s.Server.Children("/l"), 1, "kept, as it was not asked")
		require.NoError(s, other.Ask(s.Context(), "/l", h.Token(), ""))
		synctest.Wait()
		require.Empty(s, s.Server.Children("/l"))
	})
}

// A later list of the directory that shows no other contender does not undo the request.
func TestAProcessThatIsAskedToLetGoLetsGoWhateverALaterListShows(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, other := s.Client(), s.Client()
		m := c.Mutex("/l", zklock.WithLocalHandoff(1000))
		h := s.Lock(m)
		next := s.Start(m.Lock)
		time.Sleep(time.Second)
		require.NoError(s, other.Ask(s.Context(), "/l", h.Token(), ""))
		synctest.Wait()
		_, err := other.Current().Create(s.Context(), "/l/note", nil, session.Persistent, session.WorldACL())
		require.NoError(s, err)
		synctest.Wait() // the process has listed again
		s.Unlock(h)
		require.Greater(s, next.Get(s).Token(), h.Token())
	})
}

func TestAskRefusesATokenThatHasNoContender(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		require.ErrorIs(s, c.Ask(s.Context(), "/l", 17, ""), zklock.ErrNotHeld)
		h := s.Lock(c.Mutex("/l"))
		require.ErrorIs(s, c.Ask(s.Context(), "/l", h.Token()+1, ""), zklock.ErrNotHeld)
		require.ErrorIs(s, c.Ask(s.Context(), "/l", h.Token(), strings.Repeat("x", 5000)), zklock.ErrOption)
		require.ErrorIs(s, c.Ask(s.Context(), "/", h.Token(), ""), zklock.ErrPath)
	})
}

// Listening for requests costs nothing: a long hold makes as many requests as without it.
func TestToListenForRequestsCostsNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		h := s.Lock(s.Client().Mutex("/l"))
		_ = h.Asked()
		time.Sleep(time.Minute)
		require.Zero(s, s.Server.Requests()[zktest.OpGetData])
		s.Unlock(h)
	})
}

// Two requests have the same millisecond, and the later one is read first.
func TestOfTwoRequestsToLetGoTheLaterWriteCounts(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		h := s.Lock(s.Client().Mutex("/l"))
		asked := h.Asked()
		at := time.Now().UnixMilli()
		zklock.HeardSet(h, `{"asked":{"by":"b","why":"later"}}`, zk.Stat{Mzxid: 8, Mtime: at})
		zklock.HeardSet(h, `{"asked":{"by":"a","why":"earlier"}}`, zk.Stat{Mzxid: 7, Mtime: at})
		require.Equal(s, "later", (<-asked).Why)
		require.Empty(s, asked)
		s.Unlock(h)
	})
}

// A reader that was a writer has another znode, so that a request to it is a new one.
func TestAHolderThatWasAskedHearsWhoAsksAfterADowngrade(t *testing.T) {
	for _, before := range []int{1, 2, 3} {
		locktest.Simulate(t, func(s *locktest.Sim) {
			m := s.Client().RWMutex("/l")
			w := s.Take(m.Lock)
			time.Sleep(time.Second)
			for range before {
				require.NoError(s, s.Client().Ask(s.Context(), "/l", w.Token(), "readers wait"))
				_, ok := received(w)
				require.True(s, ok)
			}
			r, err := m.Downgrade(s.Context(), w)
			require.NoError(s, err)
			time.Sleep(time.Second)
			received(r) // of the earlier ones
			require.NoError(s, s.Client().Ask(s.Context(), "/l", r.Token(), "a writer waits"))
			time.Sleep(time.Second)
			got, ok := received(r)
			require.True(s, ok, "asked %d times before", before)
			require.Equal(s, "a writer waits", got.Why)
			s.Unlock(r)
		})
	}
}

// The writer becomes a reader while a client asks it: the request reaches either znode, or the client sends it again.
func TestAHolderThatIsAskedWhileItIsDowngradedHearsOfIt(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpGetData, zktest.OpSetData, zktest.OpExists} {
		for name, fault := range map[string]zktest.Fault{"before": zktest.Hold(), "behind": zktest.HoldReply()} {
			t.Run(name, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					m := s.Client().RWMutex("/l")
					w := s.Take(m.Lock)
					other := s.Client()
					session, err := other.Session(s.Context())
					require.NoError(s, err)
					held := s.Server.Inject(fault.Op(op).Session(session.ID()))
					asked := make(chan error, 1)
					go func() { asked <- other.Ask(s.Context(), "/l", w.Token(), "readers wait") }()
					synctest.Wait()
					r, err := m.Downgrade(s.Context(), w)
					require.NoError(s, err)
					held.Remove()
					require.NoError(s, <-asked)
					time.Sleep(time.Second)
					got, ok := received(r)
					require.True(s, ok)
					require.Equal(s, "readers wait", got.Why)
					line, err := other.Queue(s.Context(), "/l")
					require.NoError(s, err)
					require.Equal(s, &got, line[0].Asked)
					s.Unlock(r)
				})
			})
		}
	}
}

// Writers come and go after each look. A token that none of them has is refused all the same.
func TestAskAndBreakRefuseATokenThoughWritersComeAndGo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		session, err := c.Session(s.Context())
		require.NoError(s, err)
		require.NoError(s, s.Server.Create("/l", nil))
		n := 0
		node := func() string { return fmt.Sprintf("/l/w-__WRIT__%010d", n) }
		require.NoError(s, s.Server.Create(node(), nil))
		s.Server.Inject(zktest.Garble(func(reply []byte) []byte {
			_ = s.Server.Delete(node())
			n++
			_ = s.Server.Create(node(), nil)
			return reply
		}).Op(zktest.OpGetChildren2).Session(session.ID()))
		require.ErrorIs(s, c.Ask(s.Context(), "/l", 1<<40, ""), zklock.ErrNotHeld)
		require.ErrorIs(s, c.Break(s.Context(), "/l", 1<<40), zklock.ErrNotHeld)
		require.Less(s, n, 10)
	})
}

// The writer becomes a reader after Break has found it and before Break deletes it.
func TestBreakRemovesAWriterThatIsDowngradedMeanwhile(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().RWMutex("/l")
		w := s.Take(m.Lock)
		other := s.Client()
		session, err := other.Session(s.Context())
		require.NoError(s, err)
		held := s.Server.Inject(zktest.Hold().Op(zktest.OpDelete).Session(session.ID()))
		broken := make(chan error, 1)
		go func() { broken <- other.Break(s.Context(), "/l", w.Token()) }()
		synctest.Wait()
		r, err := m.Downgrade(s.Context(), w)
		require.NoError(s, err)
		held.Remove()
		require.NoError(s, <-broken)
		require.Empty(s, s.Server.Children("/l"))
		time.Sleep(time.Second)
		require.ErrorIs(s, r.Err(), zklock.ErrNodeDeleted)
	})
}
