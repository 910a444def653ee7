package zklock_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// Two processes of 16 goroutines each want one lock, for as long as it takes until both have had it often.
func TestLocalHandoffUnderLoadOnServers(t *testing.T) {
	s := locktest.SiteOf(t, 1)
	dir, ctx := s.Path(t), locktest.Soon(t)
	d, turns := 500*time.Millisecond, 10
	if locktest.Long() {
		d, turns = 20*time.Second, 100
	}
	type process struct{ holds, turns int }
	var inside atomic.Int32
	var mu sync.Mutex // guards what follows, where the lock does not: no race detector sees that across processes
	var all [2]process
	last, lastToken, shared := -1, zklock.Token(0), 0
	began := time.Now()
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return time.Since(began) > d && all[0].turns >= turns && all[1].turns >= turns
	}
	clients := []*zklock.Client{s.Client(t), s.Client(t)}
	var workers sync.WaitGroup
	for i, c := range clients {
		m := c.Mutex(dir, zklock.WithLocalHandoff(20), zklock.WithIdleKeep(time.Second))
		for range 16 {
			workers.Go(func() {
				for !enough() {
					h, err := m.Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					if !inside.CompareAndSwap(0, 1) {
						t.Error("two holders")
					}
					mu.Lock()
					switch {
					case h.Token() == lastToken:
						shared++
					case h.Token() < lastToken:
						t.Errorf("token %d after %d", h.Token(), lastToken)
					}
					if h.Token() == lastToken && last != i {
						t.Errorf("token %d is of two processes", lastToken)
					}
					if last != i {
						all[i].turns++
					}
					all[i].holds++
					last, lastToken = i, h.Token()
					mu.Unlock()
					if !inside.CompareAndSwap(1, 0) {
						t.Error("two holders")
					}
					if err := h.Unlock(ctx); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	workers.Wait()
	t.Logf("%v: %+v; %d of the holds were handed on inside", time.Since(began).Round(time.Millisecond), all, shared)
	require.Greater(t, shared, (all[0].holds+all[1].holds)/2)
	locktest.AwaitContenders(t, s.Client(t), dir, 0)
	for _, c := range clients {
		require.Empty(t, c.Status().Holds)
		ensemble.Until(t, locktest.Bound, "no local line left", func() error {
			if n := zklock.LocalQueues(c); n > 0 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
	}
}

func TestAHandedOnLockCostsNoRequestOnTheWire(t *testing.T) {
	s := locktest.SiteOf(t, 1)
	c, p := s.Tapped(t)
	m := c.Mutex(s.Path(t), zklock.WithLocalHandoff(1), zklock.WithIdleKeep(time.Minute))
	first := locktest.Lock(t, m)
	locktest.Unlock(t, first)
	awaitReplies(t, p.Tap(), ensemble.OpSetWatches, 1)
	awaitReplies(t, p.Tap(), ensemble.OpExists, 1)
	awaitReplies(t, p.Tap(), ensemble.OpGetChildren2, 3) // Lock's, before and after the directory was made, and the look for others
	p.Tap().Reset()
	for range 100 {
		w := make(chan *zklock.Hold, 1)
		h := locktest.Lock(t, m)
		go func() {
			h, err := m.Lock(locktest.Soon(t))
			if err != nil {
				t.Error(err)
			}
			w <- h
		}()
		locktest.Unlock(t, h)
		h = <-w
		require.Equal(t, first.Token(), h.Token())
		locktest.Unlock(t, h)
	}
	for _, f := range passed(p.Tap(), false) {
		require.Contains(t, []string{"ping", "→ping"}, f)
	}
}
