package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// reign checks an election inside this process: which candidates lead by their own clocks.
type reign struct {
	mu     sync.Mutex // guards what follows
	leader *zklock.Leadership
	who    int
	terms  int
	last   zklock.Token
	broken []error
}

// begin records a term. No other candidate may still believe that it leads, unless force says that the last leader was removed by
// force, against which only the token protects.
func (r *reign) begin(who int, l *zklock.Leadership, force bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != nil && r.leader.Err() == nil && !force {
		r.broken = append(r.broken, fmt.Errorf("%d leads with token %d while %d does with token %d", who, l.Token(), r.who, r.leader.Token()))
	}
	if l.Token() <= r.last {
		r.broken = append(r.broken, fmt.Errorf("token %d came after token %d", l.Token(), r.last))
	}
	r.leader, r.who, r.last = l, who, l.Token()
	r.terms++
}

// state returns who leads, and how many terms there were.
func (r *reign) state() (leader *zklock.Leadership, who, terms int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader, r.who, r.terms
}

// With three servers, one leader after the other is cut off for good, until its session has expired. There are never two leaders by
// their own clocks, each term's token is greater than the last, and observers see each term that lasts.
func TestLeadersThatAreCutOffOneAfterTheOther(t *testing.T) {
	s := locktest.SiteBeside(t, 3)
	path := s.Path(t)
	var reign reign
	ctx, cancel := context.WithCancel(locktest.Late(t))
	const candidates = 32
	proxies := make([]*ensemble.Proxy, candidates)
	var all sync.WaitGroup
	for i := range candidates {
		proxies[i] = ensemble.NewProxy(t, s.Addrs[i%len(s.Addrs)])
		c := s.ClientAt(t, proxies[i].Addr(), zklock.WithSessionTimeout(s.ShortTimeout()))
		all.Go(func() {
			err := c.Election(path).Run(ctx, []byte(fmt.Sprint(i)), func(work context.Context, l *zklock.Leadership) error {
				reign.begin(i, l, false)
				<-work.Done()
				return work.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	defer all.Wait()
	defer cancel()
	observer := s.Client(t)
	end := time.Now().Add(loadTime())
	for kills := 0; kills < 3 || time.Now().Before(end); kills++ {
		awaitTerms(t, &reign, kills)
		leader, who, _ := reign.state()
		proxies[who].Freeze()
		select {
		case <-leader.Context().Done(): // by its own clock
		case <-time.After(locktest.Bound):
			t.Fatal("a leader that was cut off leads for ever")
		}
		require.ErrorIs(t, leader.Err(), zklock.ErrLost)
		awaitTerms(t, &reign, kills+1)
		proxies[who].Thaw()
		seen, err := observer.Election(path).Leader(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, seen.Token, reign.token())
	}
	endReign(t, &reign)
}

// token returns the token of the latest term.
func (r *reign) token() zklock.Token {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// The znodes of leaders are deleted by force: then only the token says which leader is the latest.
func TestLeadersThatAreBrokenByForce(t *testing.T) {
	s := locktest.SiteBeside(t, 3)
	path := s.Path(t)
	var reign reign
	ctx, cancel := context.WithCancel(locktest.Late(t))
	var all sync.WaitGroup
	clients := make([]*zklock.Client, 8)
	for i := range clients {
		clients[i] = s.Client(t)
		all.Go(func() {
			err := clients[i].Election(path).Run(ctx, nil, func(work context.Context, l *zklock.Leadership) error {
				reign.begin(i, l, true)
				<-work.Done()
				return work.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	defer all.Wait()
	defer cancel()
	end := time.Now().Add(loadTime())
	for kills := 0; kills < 5 || time.Now().Before(end); kills++ {
		awaitTerms(t, &reign, kills)
		leader, _, _ := reign.state()
		require.NoError(t, clients[0].Break(ctx, path, leader.Token()))
		awaitTerms(t, &reign, kills+1)
		_, err := leader.Multi(ctx, &zk.SetDataRequest{Path: path, Data: []byte("stale"), Version: -1})
		require.ErrorIs(t, err, zklock.ErrLost)
	}
	endReign(t, &reign)
}

// awaitTerms waits until more terms than n have begun.
func awaitTerms(t *testing.T, r *reign, n int) {
	t.Helper()
	ensemble.Until(t, locktest.Bound, fmt.Sprintf("term %d", n+1), func() error {
		if _, _, terms := r.state(); terms <= n {
			return fmt.Errorf("there were %d", terms)
		}
		return nil
	})
}

func endReign(t *testing.T, r *reign) {
	t.Helper()
	_, _, terms := r.state()
	t.Logf("%d terms", terms)
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NoError(t, errors.Join(r.broken...))
}
