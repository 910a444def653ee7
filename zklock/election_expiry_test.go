package zklock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Elections: scenario 39, and what observers see of it.

// view is what an observer has yielded so far.
type view struct {
	stop context.CancelFunc
	done chan struct{}      // closed when the sequence has ended
	seen chan zklock.Leader // a zero Leader for "no leader"
	err  error              // the last one; set when done is closed
}

// observe watches an election in its own goroutine, which ends with stop or with the test.
func observe(s *locktest.Sim, e *zklock.Election) *view {
	ctx, cancel := context.WithCancel(s.Context())
	v := &view{stop: cancel, done: make(chan struct{}), seen: make(chan zklock.Leader, 1000)}
	go func() {
		defer close(v.done)
		for l, err := range e.Observe(ctx) {
			switch {
			case err == nil, errors.Is(err, zklock.ErrNoLeader):
				v.seen <- l
			default:
				v.err = err
			}
		}
	}()
	s.Cleanup(func() { cancel(); <-v.done })
	synctest.Wait() // it has seen the present state
	return v
}

// values waits until every goroutine waits, and returns what was yielded since the last call: the leaders' values, "-" for no
// leader.
func (v *view) values() []string {
	synctest.Wait()
	values := []string{}
	for {
		select {
		case l := <-v.seen:
			if l.Node == "" {
				values = append(values, "-")
			} else {
				values = append(values, string(l.Value))
			}
		default:
			return values
		}
	}
}

// scenario 39: the leader is cut off, its session expires, and it comes back. There were never two leaders by their own
// clocks, and an observer sees "no leader" in between.
func TestScenario39_ALeaderThatExpiresAndComesBackNeverLeadsBesideItsSuccessor(t *testing.T) {
	for name, cut := range cutOffs {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				f, dir, b := s.Follower(), s.Dir("/e"), s.Client()
				a := s.ClientAt(f)
				view := observe(s, s.Client().Election(dir))
				first := lead(s, a.Election(dir), "a")
				lost := locktest.LossOf(first)
				second := campaign(s.Context(), b.Election(dir), "b")
				time.Sleep(time.Minute)
				require.NoError(s, first.Err())
				cut(s, a, f)
				after := second.Get(s)
				loss := <-lost
				require.ErrorIs(s, loss.Cause, zklock.ErrLost)
				require.True(s, loss.At.Before(second.At), "two leaders for %v", loss.At.Sub(second.At))
				require.False(s, second.At.Before(loss.Safe), "it began before the first one's SafeUntil")
				require.Greater(s, after.Token(), first.Token())

				f.Heal()
				f.Up()
				a.LeadTo(s.Server.Leader()) // whatever its faulty link does: the faults affect the old session only
				back := campaign(s.Context(), a.Election(dir), "a again")
				time.Sleep(time.Minute)
				require.False(s, back.Over(), "it stands behind its successor")
				require.NoError(s, after.Err())
				require.NoError(s, after.Unlock())
				require.Greater(s, back.Get(s).Token(), after.Token())
				require.Equal(s, []string{"-", "a", "-", "b", "-", "a again"}, view.values())
			})
		})
	}
}

// scenario 39, with Run on both sides and one loss after the other: every term has a greater token, no two overlap by
// their own clocks, and the observer sees each of them once.
func TestScenario39_TermsOfTwoCandidatesThatTakeTurnsExpiringNeverOverlap(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		type term struct {
			who         string
			token       zklock.Token
			began, over time.Time
		}
		dir := s.Dir("/e")
		view := observe(s, s.Client().Election(dir))
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		terms := make(chan term, 100)
		var mu sync.Mutex // guards leading
		leading := map[string]bool{}
		clients := map[string]*locktest.Client{"a": s.Client(), "b": s.Client()}
		ended := make(chan error, len(clients))
		for who, c := range clients {
			go func() { // ends with Run
				ended <- c.Election(dir).Run(ctx, []byte(who), func(work context.Context, l *zklock.Hold) error {
					began := time.Now()
					mark := func(on bool) { mu.Lock(); leading[who] = on; mu.Unlock() }
					mark(true)
					<-work.Done()
					mark(false)
					terms <- term{who, l.Token(), began, time.Now()}
					return work.Err()
				})
			}()
		}
		const rounds = 6
		for range rounds {
			time.Sleep(20 * time.Second)
			synctest.Wait()
			mu.Lock()
			require.NotEqual(s, leading["a"], leading["b"], "one leads")
			who := "a"
			if leading["b"] {
				who = "b"
			}
			mu.Unlock()
			cut := s.Server.Inject(fault.Freeze().Session(clients[who].SessionID()))
			time.AfterFunc(25*time.Second, cut.Remove)
			time.Sleep(30 * time.Second)
		}
		var last term
		for range rounds {
			next := <-terms
			require.NotEqual(s, last.who, next.who)
			require.Greater(s, next.token, last.token)
			require.False(s, next.began.Before(last.over), "two leaders for %v", last.over.Sub(next.began))
			last = next
		}
		seen := view.values()
		require.Len(s, seen, 2*(rounds+1))
		for i, v := range seen {
			if i%2 == 0 {
				require.Equal(s, "-", v)
			} else {
				require.Contains(s, []string{"a", "b"}, v)
			}
		}
		view.stop()
		for who := range clients {
			require.NoError(s, clients[who].Close())
		}
		for range clients {
			require.ErrorIs(s, <-ended, zklock.ErrClosed)
		}
	})
}
