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

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Election: scenarios 38 and 40; 39 is in election_expiry_test.go.

// electCampaign campaigns in a goroutine; its result has the leadership's hold.
func electCampaign(ctx context.Context, e *zklock.Election, value string) *electCall {
	c := &electCall{}
	c.simCall = simGo(ctx, func(ctx context.Context) (*zklock.Hold, error) {
		l, err := e.Campaign(ctx, []byte(value))
		if err != nil {
			return nil, err
		}
		c.l = l
		return l.Hold, nil
	})
	return c
}

// electCall is a campaign that goes on while the test does something else.
type electCall struct {
	*simCall
	l *zklock.Leadership // set when done is closed
}

// win waits for the leadership.
func (c *electCall) win(s *sim) *zklock.Leadership {
	s.Helper()
	c.get(s)
	return c.l
}

// lead campaigns, which must succeed.
func (s *sim) lead(e *zklock.Election, value string) *zklock.Leadership {
	s.Helper()
	l, err := e.Campaign(s.Context(), []byte(value))
	require.NoError(s, err)
	return l
}

// electTerms notes the terms of one Run, and whether two calls of its callback were ever under way at once.
type electTerms struct {
	mu       sync.Mutex // guards what follows
	inside   int
	overlaps int
	tokens   []zklock.Token
}

// begin notes a call of the callback; the returned function its end.
func (x *electTerms) begin(l *zklock.Leadership) (end func()) {
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
func (x *electTerms) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.tokens)
}

// check demands that no two calls overlapped and that tokens grew.
func (x *electTerms) check(s *sim) {
	s.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	require.Zero(s, x.overlaps, "two calls of the callback were under way at once")
	for i := 1; i < len(x.tokens); i++ {
		require.Greater(s, x.tokens[i], x.tokens[i-1])
	}
}

// electMishaps are errors that a campaign may meet; each strikes a candidate that enters the line of dir.
var electMishaps = map[string]func(s *sim, c *simClient, dir string){
	"the create's reply is lost": func(s *sim, _ *simClient, dir string) {
		s.srv.Inject(zktest.CloseAfter().Op(zktest.OpCreate).Path(dir + "/*").Times(3))
	},
	"the create is lost": func(s *sim, _ *simClient, dir string) {
		s.srv.Inject(zktest.CloseBefore().Op(zktest.OpCreate).Path(dir + "/*").Times(3))
	},
	"the list's reply is lost": func(s *sim, _ *simClient, dir string) {
		s.srv.Inject(zktest.CloseAfter().Op(zktest.OpGetChildren2).Path(dir).Times(3))
	},
	"the create's reply is garbage": func(s *sim, _ *simClient, dir string) {
		s.srv.Inject(electGarbage().Op(zktest.OpCreate).Path(dir + "/*").Once())
	},
	"the list is garbage": func(s *sim, _ *simClient, dir string) {
		s.srv.Inject(electGarbage().Op(zktest.OpGetChildren2).Path(dir).Once())
	},
	"the server times out": func(s *sim, _ *simClient, dir string) {
		s.srv.Inject(zktest.Answer(zktest.CodeOperationTimeout).Op(zktest.OpCreate).Path(dir + "/*").Times(2))
	},
	"the server can't list": func(s *sim, _ *simClient, dir string) {
		s.srv.Inject(zktest.Answer(zktest.CodeOperationTimeout).Op(zktest.OpGetChildren2).Path(dir).Times(2))
	},
	"the server can't watch": func(s *sim, _ *simClient, dir string) {
		s.srv.Inject(zktest.Answer(zktest.CodeOperationTimeout).Op(zktest.OpExists).Path(dir + "/*").Once())
	},
	"the session ends when it enters": func(s *sim, c *simClient, dir string) {
		s.srv.Inject(zktest.ExpireSession().Op(zktest.OpCreate).Path(dir + "/*").Session(c.id()).Once())
	},
	"the session ends while it waits": func(s *sim, c *simClient, _ string) {
		id := c.id()
		time.AfterFunc(2*time.Second, func() {
			if err := s.srv.Expire(id); err != nil {
				s.Error(err)
			}
		})
	},
	"its znode is deleted while it waits": func(s *sim, c *simClient, dir string) {
		time.AfterFunc(2*time.Second, func() {
			names := contenders(s.srv.Children(dir))
			if err := s.srv.Delete(dir + "/" + names[len(names)-1]); err != nil {
				s.Error(err)
			}
		})
	},
	"the directory is deleted while it waits": func(s *sim, _ *simClient, dir string) {
		time.AfterFunc(2*time.Second, func() { s.remove(dir, true) })
	},
	"no server for a while": func(s *sim, _ *simClient, _ string) {
		s.srv.Leader().Down()
		time.AfterFunc(4*time.Second, s.srv.Leader().Up)
	},
}

// electGarbage makes a reply's body unreadable and leaves its header alone.
func electGarbage() zktest.Fault {
	return zktest.Garble(func(reply []byte) []byte { return append(reply[:16:16], 0x7f, 0xff, 0xff, 0xff) })
}

// scenario 38: whatever goes wrong in a campaign, the candidate campaigns again, until it leads.
func TestScenario38_AfterAnyErrorInACampaignTheCandidateCampaignsAgain(t *testing.T) {
	for name, strike := range electMishaps {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, first, c := s.dir("/e"), s.client(), s.client()
				l := s.lead(first.Election(dir), "first")
				ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
				defer cancel()
				strike(s, c, dir)
				var terms electTerms
				done := make(chan error, 1)
				go func() { // ends with Run
					done <- c.Election(dir).Run(ctx, []byte("c"), func(work context.Context, l *zklock.Leadership) error {
						defer terms.begin(l)()
						<-work.Done()
						return work.Err()
					})
				}()
				time.Sleep(10 * time.Second)
				if err := l.Resign(ctx); err != nil {
					require.ErrorIs(s, err, zklock.ErrLost) // the mishap was everybody's
				}
				s.until(time.Minute, "it leads", func() bool { return terms.count() > 0 })
				time.Sleep(time.Minute)
				leader, err := first.Election(dir).Leader(ctx)
				require.NoError(s, err)
				require.Equal(s, "c", string(leader.Value))
				require.Len(s, s.srv.Children(dir), 1, "of its attempts only one is left")
				cancel()
				require.ErrorIs(s, <-done, context.Canceled)
				terms.check(s)
				s.empty(time.Second, dir)
			})
		})
	}
}

// scenario 38: a callback that takes its time after the loss of its term has returned before the candidate stands in
// line again, and so before the next callback begins.
func TestScenario38_ACallbackHasReturnedBeforeTheNextCampaignBegins(t *testing.T) {
	for _, slow := range []time.Duration{0, 50 * time.Millisecond, 3 * time.Second, time.Minute} {
		t.Run(slow.String(), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, c := s.dir("/e"), s.client()
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				var terms electTerms
				oops := errors.New("the work was cut short")
				done := make(chan error, 1)
				go func() { // ends with Run
					done <- c.Election(dir).Run(ctx, nil, func(work context.Context, l *zklock.Leadership) error {
						defer terms.begin(l)()
						<-work.Done()
						time.Sleep(slow)
						return oops
					})
				}()
				const losses = 5
				for n := 1; n <= losses; n++ {
					s.until(10*time.Second, fmt.Sprint("term ", n), func() bool { return terms.count() == n })
					time.Sleep(time.Second)
					if n%2 == 0 {
						require.NoError(s, s.srv.Expire(c.id()))
					} else {
						require.NoError(s, s.srv.Delete(dir+"/"+s.srv.Children(dir)[0]))
					}
					for end := time.Now().Add(slow - time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
						require.Empty(s, s.srv.Children(dir), "it stands in line while its callback still runs")
					}
				}
				s.until(10*time.Second, "the last term", func() bool { return terms.count() == losses+1 })
				require.Empty(s, done, "an error of a callback that lost its term ends nothing")
				cancel()
				require.ErrorIs(s, <-done, oops, "the last term was not lost: its error is Run's")
				terms.check(s)
				s.empty(time.Second, dir)
			})
		})
	}
}

// electResigns are the ways in which the delete of a resignation can fail. gone tells whether the session, too, is over
// in the end.
var electResigns = map[string]struct {
	fail func(s *sim, c *simClient)
	gone bool
}{
	"the reply is lost":    {func(s *sim, _ *simClient) { s.srv.Inject(zktest.CloseAfter().Op(zktest.OpDelete).Once()) }, false},
	"the request is lost":  {func(s *sim, _ *simClient) { s.srv.Inject(zktest.CloseBefore().Op(zktest.OpDelete).Times(5)) }, false},
	"the reply is garbage": {func(s *sim, _ *simClient) { s.srv.Inject(zktest.Truncate(7).Op(zktest.OpDelete).Once()) }, false},
	"the server refuses it": {func(s *sim, _ *simClient) {
		s.srv.Inject(zktest.Answer(zktest.CodeOperationTimeout).Op(zktest.OpDelete).Times(2))
	}, false},
	"the request is stuck": {func(s *sim, _ *simClient) {
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpDelete).Once())
		time.AfterFunc(4*time.Second, in.Release)
	}, false},
	"no server for a while":  {func(s *sim, _ *simClient) { s.srv.Leader().Down(); time.AfterFunc(3*time.Second, s.srv.Leader().Up) }, false},
	"no server for too long": {func(s *sim, _ *simClient) { s.srv.Leader().Down(); time.AfterFunc(30*time.Second, s.srv.Leader().Up) }, true},
	"the session ends instead": {func(s *sim, _ *simClient) {
		s.srv.Inject(zktest.ExpireSession().Op(zktest.OpDelete).Once())
	}, true},
}

// scenario 40: resign's delete fails: the leadership has ended for its holder at once and for good, whatever the call
// returns; as long as the znode stands others still see the leader, and nobody else leads; and the znode goes.
func TestScenario40_AResignationWhoseDeleteFailsIsNeverForgotten(t *testing.T) {
	for name, c := range electResigns {
		for _, limit := range []time.Duration{0, 2 * time.Second, time.Hour} {
			t.Run(fmt.Sprintf("%s, within %v", name, limit), func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, a, b := s.dir("/e"), s.client(), s.client()
					b.at(s.follower()) // it keeps its session when a's server goes
					s.srv.DropConnections()
					synctest.Wait()
					l := s.lead(a.Election(dir), "a")
					next := electCampaign(s.Context(), b.Election(dir), "b")
					time.Sleep(time.Second)
					require.False(s, next.over())
					c.fail(s, a)
					ctx, cancel := context.WithTimeout(s.Context(), limit)
					defer cancel()
					resigned := make(chan error, 1)
					go func() { resigned <- l.Resign(ctx) }() // ends with ctx at the latest
					synctest.Wait()
					require.Error(s, l.Err(), "for its holder it has ended")
					require.Error(s, l.Context().Err())
					if _, stands := s.srv.Node(l.Node()); stands {
						require.False(s, next.over(), "nobody leads while it may still be held")
						leader, err := b.Election(dir).Leader(s.Context())
						require.NoError(s, err)
						require.Equal(s, l.Token(), leader.Token, "for others it is still held")
					}
					err := <-resigned
					require.ErrorIs(s, l.Resign(s.Context()), zklock.ErrNotHeld, "it is not resigned twice")
					if err == nil {
						_, stands := s.srv.Node(l.Node())
						require.False(s, stands, "nil says that it is gone")
					}
					s.until(40*time.Second, "its znode is gone", func() bool { _, stands := s.srv.Node(l.Node()); return !stands })
					after := next.win(s)
					require.Greater(s, after.Token(), l.Token())
					require.Error(s, l.Err())
					require.ErrorIs(s, l.Proclaim(s.Context(), []byte("stale")), l.Err(), "what it was is known for ever")
					if !c.gone {
						require.True(s, errors.Is(l.Err(), zklock.ErrUnlocked), "%v", l.Err())
					}
					again := electCampaign(s.Context(), a.Election(dir), "a")
					require.NoError(s, after.Resign(s.Context()))
					require.NoError(s, again.win(s).Resign(s.Context()), "nothing of its own stands in its way")
				})
			})
		}
	}
}
