package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Elections: scenarios 38 and 40; scenario 39 is in election_expiry_test.go.

// campaign campaigns in a goroutine.
func campaign(ctx context.Context, e *zklock.Election, value string) *locktest.Call {
	return locktest.Go(ctx, locktest.Campaign(e, value))
}

// lead campaigns, which must succeed.
func lead(s *locktest.Sim, e *zklock.Election, value string) *zklock.Hold {
	s.Helper()
	return s.Take(locktest.Campaign(e, value))
}

// terms records the terms of one Run, and whether two calls of its callback were ever under way at once.
type terms struct {
	mu       sync.Mutex // guards what follows
	inside   int
	overlaps int
	tokens   []zklock.Token
}

// begin records a call of the callback; the returned function records its end.
func (x *terms) begin(l *zklock.Hold) (end func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.inside++; x.inside > 1 {
		x.overlaps++
	}
	x.tokens = append(x.tokens, l.Token())
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.inside--
	}
}

// count returns how many terms have begun.
func (x *terms) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.tokens)
}

// check requires that no two calls overlapped, and that tokens grew.
func (x *terms) check(s *locktest.Sim) {
	s.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	require.Zero(s, x.overlaps, "two calls of the callback were under way at once")
	for i := 1; i < len(x.tokens); i++ {
		require.Greater(s, x.tokens[i], x.tokens[i-1])
	}
}

// mishaps are faults for a campaign; each affects a candidate that enters the queue at dir.
var mishaps = map[string]func(s *locktest.Sim, c *locktest.Client, dir string){
	"the create's reply is lost": func(s *locktest.Sim, _ *locktest.Client, dir string) {
		s.Server.Inject(fault.CloseAfter().Op(fault.OpCreate).Path(dir + "/*").Times(3))
	},
	"the create is lost": func(s *locktest.Sim, _ *locktest.Client, dir string) {
		s.Server.Inject(fault.CloseBefore().Op(fault.OpCreate).Path(dir + "/*").Times(3))
	},
	"the list's reply is lost": func(s *locktest.Sim, _ *locktest.Client, dir string) {
		s.Server.Inject(fault.CloseAfter().Op(fault.OpGetChildren2).Path(dir).Times(3))
	},
	"the create's reply is garbage": func(s *locktest.Sim, _ *locktest.Client, dir string) {
		s.Server.Inject(garbledLeader().Op(fault.OpCreate).Path(dir + "/*").Once())
	},
	"the list is garbage": func(s *locktest.Sim, _ *locktest.Client, dir string) {
		s.Server.Inject(garbledLeader().Op(fault.OpGetChildren2).Path(dir).Once())
	},
	"the server times out": func(s *locktest.Sim, _ *locktest.Client, dir string) {
		s.Server.Inject(fault.Answer(fault.CodeOperationTimeout).Op(fault.OpCreate).Path(dir + "/*").Times(2))
	},
	"the server can't list": func(s *locktest.Sim, _ *locktest.Client, dir string) {
		s.Server.Inject(fault.Answer(fault.CodeOperationTimeout).Op(fault.OpGetChildren2).Path(dir).Times(2))
	},
	"the server can't watch": func(s *locktest.Sim, _ *locktest.Client, dir string) {
		s.Server.Inject(fault.Answer(fault.CodeOperationTimeout).Op(fault.OpExists).Path(dir + "/*").Once())
	},
	"the session ends when it enters": func(s *locktest.Sim, c *locktest.Client, dir string) {
		s.Server.Inject(fault.ExpireSession().Op(fault.OpCreate).Path(dir + "/*").Session(c.SessionID()).Once())
	},
	"the session ends while it waits": func(s *locktest.Sim, c *locktest.Client, _ string) {
		id := c.SessionID()
		time.AfterFunc(2*time.Second, func() {
			if err := s.Server.Expire(id); err != nil {
				s.Error(err)
			}
		})
	},
	"its znode is deleted while it waits": func(s *locktest.Sim, c *locktest.Client, dir string) {
		time.AfterFunc(2*time.Second, func() {
			names := locktest.Contenders(s.Server.Children(dir))
			if err := s.Server.Delete(dir + "/" + names[len(names)-1]); err != nil {
				s.Error(err)
			}
		})
	},
	"the directory is deleted while it waits": func(s *locktest.Sim, _ *locktest.Client, dir string) {
		time.AfterFunc(2*time.Second, func() { s.RemoveDir(dir, true) })
	},
	"no server for a while": func(s *locktest.Sim, _ *locktest.Client, _ string) {
		s.Server.Leader().Down()
		time.AfterFunc(4*time.Second, s.Server.Leader().Up)
	},
}

// garbledLeader makes a reply's body unreadable and leaves its header alone.
func garbledLeader() fault.Fault {
	return fault.Garble(func(reply []byte) []byte { return append(reply[:16:16], 0x7f, 0xff, 0xff, 0xff) })
}

// scenario 38: whatever goes wrong in a campaign, the candidate campaigns again, until it leads.
func TestScenario38_AfterAnyErrorInACampaignTheCandidateCampaignsAgain(t *testing.T) {
	for name, strike := range mishaps {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, first, c := s.Dir("/e"), s.Client(), s.Client()
				l := lead(s, first.Election(dir), "first")
				ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
				defer cancel()
				strike(s, c, dir)
				var terms terms
				done := make(chan error, 1)
				go func() { // ends with Run
					done <- c.Election(dir).Run(ctx, []byte("c"), func(work context.Context, l *zklock.Hold) error {
						defer terms.begin(l)()
						<-work.Done()
						return work.Err()
					})
				}()
				time.Sleep(10 * time.Second)
				if err := l.Unlock(); err != nil {
					require.ErrorIs(s, err, zklock.ErrLost) // the fault affected all clients
				}
				s.Until(time.Minute, "it leads", func() bool { return terms.count() > 0 })
				time.Sleep(time.Minute)
				leader, err := first.Election(dir).Leader(ctx)
				require.NoError(s, err)
				require.Equal(s, "c", string(leader.Value))
				require.Len(s, s.Server.Children(dir), 1, "of its attempts only one is left")
				cancel()
				require.ErrorIs(s, <-done, context.Canceled)
				terms.check(s)
				s.Empty(time.Second, dir)
			})
		})
	}
}

// scenario 38: a callback that goes on after the loss of its term has returned before the candidate enters the queue again, and so
// before the next callback begins.
func TestScenario38_ACallbackHasReturnedBeforeTheNextCampaignBegins(t *testing.T) {
	for _, slow := range []time.Duration{0, 50 * time.Millisecond, 3 * time.Second, time.Minute} {
		t.Run(slow.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/e"), s.Client()
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				var terms terms
				oops := errors.New("the work was cut short")
				done := make(chan error, 1)
				go func() { // ends with Run
					done <- c.Election(dir).Run(ctx, nil, func(work context.Context, l *zklock.Hold) error {
						defer terms.begin(l)()
						<-work.Done()
						time.Sleep(slow)
						return oops
					})
				}()
				const losses = 5
				for n := 1; n <= losses; n++ {
					s.Until(10*time.Second, fmt.Sprint("term ", n), func() bool { return terms.count() == n })
					time.Sleep(time.Second)
					if n%2 == 0 {
						require.NoError(s, s.Server.Expire(c.SessionID()))
					} else {
						require.NoError(s, s.Server.Delete(dir+"/"+s.Server.Children(dir)[0]))
					}
					for end := time.Now().Add(slow - time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
						require.Empty(s, s.Server.Children(dir), "it stands in line while its callback still runs")
					}
				}
				s.Until(10*time.Second, "the last term", func() bool { return terms.count() == losses+1 })
				require.Empty(s, done, "an error of a callback that lost its term ends nothing")
				cancel()
				require.ErrorIs(s, <-done, oops, "the last term was not lost: its error is Run's")
				terms.check(s)
				s.Empty(time.Second, dir)
			})
		})
	}
}

// resigns are the ways in which the delete of a resignation can fail. gone: the session ends too.
var resigns = map[string]struct {
	fail func(s *locktest.Sim, c *locktest.Client)
	gone bool
}{
	"the reply is lost": {func(s *locktest.Sim, _ *locktest.Client) {
		s.Server.Inject(fault.CloseAfter().Op(fault.OpDelete).Once())
	}, false},
	"the request is lost": {func(s *locktest.Sim, _ *locktest.Client) {
		s.Server.Inject(fault.CloseBefore().Op(fault.OpDelete).Times(5))
	}, false},
	"the reply is garbage": {func(s *locktest.Sim, _ *locktest.Client) {
		s.Server.Inject(fault.Truncate(7).Op(fault.OpDelete).Once())
	}, false},
	"the server refuses it": {func(s *locktest.Sim, _ *locktest.Client) {
		s.Server.Inject(fault.Answer(fault.CodeOperationTimeout).Op(fault.OpDelete).Times(2))
	}, false},
	"the request is stuck": {func(s *locktest.Sim, _ *locktest.Client) {
		in := s.Server.Inject(fault.Hold().Op(fault.OpDelete).Once())
		time.AfterFunc(4*time.Second, in.Release)
	}, false},
	"no server for a while": {func(s *locktest.Sim, _ *locktest.Client) {
		s.Server.Leader().Down()
		time.AfterFunc(3*time.Second, s.Server.Leader().Up)
	}, false},
	"no server for too long": {func(s *locktest.Sim, _ *locktest.Client) {
		s.Server.Leader().Down()
		time.AfterFunc(30*time.Second, s.Server.Leader().Up)
	}, true},
	"the session ends instead": {func(s *locktest.Sim, _ *locktest.Client) {
		s.Server.Inject(fault.ExpireSession().Op(fault.OpDelete).Once())
	}, true},
}

// scenario 40: the delete of a resignation fails. The leadership has ended for its holder at once and for good, whatever the call
// returns. As long as the znode exists, others still see the leader and no other candidate leads. In the end the znode is deleted.
func TestScenario40_AResignationWhoseDeleteFailsIsNeverForgotten(t *testing.T) {
	for name, c := range resigns {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b := s.Dir("/e"), s.Client(), s.Client()
				b.LeadTo(s.Follower()) // it keeps its session when a's server goes
				s.Server.DropConnections()
				synctest.Wait()
				l := lead(s, a.Election(dir), "a")
				next := campaign(s.Context(), b.Election(dir), "b")
				time.Sleep(time.Second)
				require.False(s, next.Over())
				c.fail(s, a)
				resigned := make(chan error, 1)
				go func() { resigned <- l.Unlock() }()
				synctest.Wait()
				require.Error(s, l.Err(), "for its holder it has ended")
				require.Error(s, l.Context().Err())
				if _, stands := s.Server.Node(l.Node()); stands {
					require.False(s, next.Over(), "nobody leads while it may still be held")
					leader, err := b.Election(dir).Leader(s.Context())
					require.NoError(s, err)
					require.Equal(s, l.Token(), leader.Token, "for others it is still held")
				}
				<-resigned
				require.ErrorIs(s, l.Unlock(), zklock.ErrUnlocked, "it is not resigned twice")
				s.Until(40*time.Second, "its znode is gone", func() bool { _, stands := s.Server.Node(l.Node()); return !stands })
				after := next.Get(s)
				require.Greater(s, after.Token(), l.Token())
				require.Error(s, l.Err())
				require.ErrorIs(s, b.Election(dir).Proclaim(s.Context(), l, []byte("stale")), l.Err(), "what it was is known for ever")
				if !c.gone {
					require.True(s, errors.Is(l.Err(), zklock.ErrUnlocked), "%v", l.Err())
				}
				again := campaign(s.Context(), a.Election(dir), "a")
				require.NoError(s, after.Unlock())
				require.NoError(s, again.Get(s).Unlock(), "nothing of its own stands in its way")
			})
		})
	}
}
