package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// permits counts the permits in use.
type permits struct {
	mu     sync.Mutex // guards what follows
	size   int
	out    map[*zklock.Hold]int
	most   int
	takes  int
	broken []error
}

// take records that permits are held; those of holds that have ended by themselves no longer count.
func (p *permits) take(h *zklock.Hold, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out[h] = n
	p.takes++
	sum := 0
	for h, n := range p.out {
		if h.Context().Err() == nil {
			sum += n
		}
	}
	p.most = max(p.most, sum)
	if sum > p.size {
		p.broken = append(p.broken, fmt.Errorf("%d permits of %d are out when %s begins", sum, p.size, h.Node()))
	}
}

// give records that a holder is about to release.
func (p *permits) give(h *zklock.Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.out, h)
}

// Many clients of three servers take and release permits, some of them giving up. The permits in use are never more than the
// size, and reach it.
func TestManyClientsNeverHaveMorePermitsThanThereAreAndHaveAllOfThem(t *testing.T) {
	const clients, size = 32, 7
	s := locktest.SiteBeside(t, 3)
	path := s.Path(t)
	out := permits{size: size, out: map[*zklock.Hold]int{}}
	var workers sync.WaitGroup
	all := make([]*zklock.Client, clients)
	for i := range all {
		all[i] = s.Client(t)
	}
	ctx := locktest.Late(t)
	end := time.Now().Add(loadTime())
	for i, c := range all {
		workers.Go(func() {
			m, rnd := c.Semaphore(path, size), rand.New(rand.NewPCG(uint64(i), 4))
			for time.Now().Before(end) {
				n := 1 + rnd.IntN(3)
				if rnd.IntN(20) == 0 {
					n = size
				}
				patience, cancel := context.WithTimeout(ctx, locktest.Bound)
				if rnd.IntN(10) == 0 { // this one soon gives up
					cancel()
					patience, cancel = context.WithTimeout(ctx, time.Duration(rnd.IntN(20))*time.Millisecond)
				}
				h, err := m.Acquire(patience, n)
				cancel()
				if errors.Is(err, context.DeadlineExceeded) && time.Now().Before(end.Add(locktest.Bound/2)) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				out.take(h, n)
				locktest.Pass(time.Duration(rnd.IntN(3)) * time.Millisecond) // work
				out.give(h)
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	require.NoError(t, errors.Join(out.broken...))
	require.Equal(t, size, out.most, "all permits were out at some time")
	t.Logf("%d acquisitions by %d clients", out.takes, clients)
	locktest.AwaitContenders(t, all[0], path, 0)
}
