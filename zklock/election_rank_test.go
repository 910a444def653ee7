package zklock_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// ranks are candidates of one election, which lead one after the other.
type ranks struct {
	*locktest.Sim
	waiting map[string]*locktest.Call
}

func (r *ranks) campaign(name string, rank int) {
	c := r.Client()
	r.waiting[name] = r.Start(func(ctx context.Context) (context.Context, *zklock.Hold, error) {
		return c.Election("/e").WithRank(rank).Campaign(ctx, []byte(name))
	})
}

// order has the leader resign, and the next one, until nobody is left, and returns who led.
func (r *ranks) order(first *zklock.Hold) (led []string) {
	for leads := first; len(r.waiting) > 0; {
		r.Unlock(leads)
		synctest.Wait()
		leads = nil
		for name, call := range r.waiting {
			if call.Over() {
				require.Nil(r, leads, "two lead")
				led, leads = append(led, name), call.Get(r.Sim)
				delete(r.waiting, name)
			}
		}
		require.NotNil(r, leads, "nobody leads, and these wait: %v", r.waiting)
		if len(r.waiting) == 0 {
			r.Unlock(leads)
		}
	}
	return led
}

func TestTheHighestRankLeadsNextAndEqualRanksByArrival(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		leader := s.Client()
		_, first, err := leader.Election("/e").Campaign(s.Context(), []byte("leader"))
		require.NoError(s, err)
		r := &ranks{s, map[string]*locktest.Call{}}
		for _, c := range []struct {
			name string
			rank int
		}{{"old 1", 0}, {"new 1", 1}, {"old 2", 0}, {"newest", 7}, {"new 2", 1}} {
			r.campaign(c.name, c.rank)
		}
		require.NoError(s, first.Err(), "a leader is not pre-empted")
		require.Equal(s, []string{"newest", "new 1", "new 2", "old 1", "old 2"}, r.order(first))
		s.Empty(10*time.Second, "/e")
	})
}

// A contender of a mutex, as of another library, is of rank 0 and does not step aside.
func TestAContenderThatIsNoCandidateKeepsItsPlace(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		_, first, err := s.Client().Election("/e").Campaign(s.Context(), nil)
		require.NoError(s, err)
		mutex, r := s.Start(s.Client().Mutex("/e").Lock), &ranks{s, map[string]*locktest.Call{}}
		r.campaign("ranked", 3)
		s.Unlock(first)
		h := mutex.Get(s)
		require.False(s, r.waiting["ranked"].Over())
		require.Equal(s, []string{"ranked"}, r.order(h))
	})
}

// What is lost while a candidate steps aside costs nobody the lead: it, and the one that it makes way for, lead later.
func TestACandidateThatIsCutOffWhileItStepsAsideLeadsLater(t *testing.T) {
	for name, f := range map[string]fault.Fault{
		"the delete is lost":             fault.CloseBefore().Op(fault.OpDelete),
		"the reply to the delete":        fault.CloseAfter().Op(fault.OpDelete),
		"the new create is lost":         fault.CloseBefore().Op(fault.OpCreate),
		"the reply to the new create":    fault.CloseAfter().Op(fault.OpCreate),
		"the list behind the new create": fault.CloseAfter().Op(fault.OpGetChildren2).After(1),
		"the session":                    fault.ExpireSession().Op(fault.OpCreate),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				_, first, err := s.Client().Election("/e").Campaign(s.Context(), nil)
				require.NoError(s, err)
				low, high := s.Client(), s.Client()
				campaign := func(c *locktest.Client, rank int) *locktest.Call {
					return s.Start(func(ctx context.Context) (context.Context, *zklock.Hold, error) {
						return c.Election("/e").WithRank(rank).Campaign(ctx, nil)
					})
				}
				old, fresh := campaign(low, 1), campaign(high, 2)
				hit := s.Server.Inject(f.Session(low.SessionID()).Once())
				s.Unlock(first)
				h := fresh.Get(s)
				require.False(s, old.Over())
				require.Equal(s, 1, hit.Hits())
				s.Unlock(h)
				s.Unlock(old.Get(s))
				s.Empty(20*time.Second, "/e")
			})
		})
	}
}

// A number that no server has given stays behind all others: nobody steps aside for it.
func TestAMadeUpRankThatIsNeverReachedStopsNoElection(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/e")
		s.Plant(s.Stranger(), "/e/x-rank-9-lock-2000000000")
		_, first, err := s.Client().Election("/e").Campaign(s.Context(), nil)
		require.NoError(s, err)
		r := &ranks{s, map[string]*locktest.Call{}}
		r.campaign("one", 0)
		r.campaign("two", 1)
		require.Equal(s, []string{"two", "one"}, r.order(first))
	})
}

// A campaign that does not wait leads when nobody leads, though its list shows one of higher rank that came behind it.
func TestACampaignThatDoesNotWaitDoesNotStepAside(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		low, r := s.Client(), &ranks{s, map[string]*locktest.Call{}}
		s.Dir("/e")
		late := s.Server.Inject(fault.Hold().Op(fault.OpGetChildren2).Session(low.SessionID()).After(1)) // the list behind the create
		call := s.Start(func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			return low.Election("/e", zklock.WithMaxWait(0)).Campaign(ctx, nil)
		})
		r.campaign("high", 9)
		require.False(s, r.waiting["high"].Over())
		late.Remove()
		require.Equal(s, []string{"high"}, r.order(call.Get(s)))
	})
}

// The time for which a campaign may wait counts on while it steps aside.
func TestACampaignWhoseTimeEndsWhileItStepsAsideIsBusy(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		_, first, err := s.Client().Election("/e").Campaign(s.Context(), nil)
		require.NoError(s, err)
		low, r := s.Client(), &ranks{s, map[string]*locktest.Call{}}
		call := s.Start(func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			return low.Election("/e", zklock.WithMaxWait(5*time.Second)).Campaign(ctx, nil)
		})
		r.campaign("high", 1)
		s.Server.Inject(fault.Hold().Op(fault.OpCreate).Session(low.SessionID()))
		s.Unlock(first)
		h := r.waiting["high"].Get(s)
		<-call.Done
		require.ErrorIs(s, call.Err, zklock.ErrBusy)
		s.Unlock(h)
	})
}

func TestARankThatCanNotBeIsRefused(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		for _, rank := range []int{-1, math.MinInt32} {
			_, _, err := s.Client().Election("/e").WithRank(rank).Campaign(s.Context(), nil)
			require.ErrorIs(s, err, zklock.ErrInvalid)
			require.ErrorContains(s, err, "rank")
		}
		e := s.Client().Election("/e", zklock.WithMaxWait(0))
		_, h, err := e.WithRank(math.MaxInt32).Campaign(s.Context(), nil)
		require.NoError(s, err)
		_, _, err = e.Campaign(s.Context(), nil)
		require.ErrorIs(s, err, zklock.ErrBusy)
		s.Unlock(h)
	})
}
