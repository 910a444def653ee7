package zklock_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// handoffs records what two processes do with one lock.
type handoffs struct {
	inside atomic.Int32
	mu     sync.Mutex // guards the fields below: the race detector does not know that the lock orders the two processes
	of     [2]struct{ holds, turns int }
	last   int // process
	token  zklock.Token
	shared int // holds with the token of the one before
}

// enough reports whether each process has had n turns.
func (s *handoffs) enough(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[0].turns >= n && s.of[1].turns >= n
}

// hold records a hold of a process.
func (s *handoffs) hold(t *testing.T, process int, token zklock.Token) {
	if !s.inside.CompareAndSwap(0, 1) {
		t.Error("two holders")
	}
	s.mu.Lock()
	switch {
	case token < s.token:
		t.Errorf("token %d after %d", token, s.token)
	case token == s.token:
		s.shared++
		if s.last != process {
			t.Errorf("token %d is of two processes", token)
		}
	}
	if s.last != process {
		s.of[process].turns++
	}
	s.of[process].holds++
	s.last, s.token = process, token
	s.mu.Unlock()
	if !s.inside.CompareAndSwap(1, 0) {
		t.Error("two holders")
	}
}

// Two processes of 16 goroutines each take turns at one lock until each has had enough turns.
func TestLocalHandoffUnderLoadOnServers(t *testing.T) {
	s := locktest.SiteBeside(t, 1)
	dir, ctx := s.Path(t), locktest.Soon(t)
	d, n := 500*time.Millisecond, 10
	if locktest.Long() {
		d, n = 20*time.Second, 100
	}
	seen := handoffs{last: -1}
	began := time.Now()
	clients := []*zklock.Client{s.Client(t), s.Client(t)}
	var workers sync.WaitGroup
	for i, c := range clients {
		m := c.Mutex(dir, zklock.WithHandoffs(20))
		for range 16 {
			workers.Go(func() {
				for time.Since(began) <= d || !seen.enough(n) {
					h, err := m.Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					seen.hold(t, i, h.Token())
					if err := h.Unlock(ctx); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	workers.Wait()
	t.Logf("%v: %+v; %d of the holds were handed on inside", time.Since(began).Round(time.Millisecond), seen.of, seen.shared)
	require.Greater(t, seen.shared, (seen.of[0].holds+seen.of[1].holds)/2)
	locktest.AwaitContenders(t, s.Client(t), dir, 0)
	for _, c := range clients {
		require.Empty(t, c.Status().Holds)
		ensemble.Until(t, locktest.Bound, "no local queue left", func() error {
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
	m := c.Mutex(s.Path(t), zklock.WithLocalHandoff())
	h := locktest.Lock(t, m)
	next := locktest.LockAside(t, m)
	awaitReplies(t, p.Tap(), ensemble.OpSetWatches, 1)
	awaitReplies(t, p.Tap(), ensemble.OpExists, 1)
	awaitReplies(t, p.Tap(), ensemble.OpGetChildren2, 2) // that of Lock, which finds no directory, and the one for other contenders
	p.Tap().Reset()
	began := time.Now()
	for range 10 {
		waiting := next
		next = locktest.LockAside(t, m)
		ensemble.Until(t, locktest.Bound, "two in the local line", func() error {
			waits := slices.DeleteFunc(c.Status().Waits, func(w zklock.WaitedLock) bool { return w.Ahead == 0 })
			if len(waits) < 2 {
				return fmt.Errorf("there are %d", len(waits))
			}
			return nil
		})
		locktest.Unlock(t, h)
		first := h.Token()
		h = waiting.Result(t)
		require.Equal(t, first, h.Token())
	}
	allowed := []string{"ping", "→ping"}
	if time.Since(began) > s.LongTimeout()/10 { // the machine stood still, and a heartbeat was due
		allowed = append(allowed, "multi", "→multi")
	}
	for _, f := range passed(p.Tap(), false) {
		require.Contains(t, allowed, f)
	}
	locktest.Unlock(t, h)
	locktest.Unlock(t, next.Result(t))
}
