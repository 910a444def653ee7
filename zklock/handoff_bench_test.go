package zklock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// handoffReference is how long the other side of a ratio is measured, in the same run and on the same servers.
const handoffReference = 2 * time.Second

// handoffRate makes a number of goroutines do cycles for about d, and returns the cycles per second.
func handoffRate(tb testing.TB, workers int, d time.Duration, cycle func(worker int) error) float64 {
	tb.Helper()
	var cycles atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range workers {
		all.Go(func() {
			for time.Since(began) < d {
				if err := cycle(i); err != nil {
					tb.Error(err)
					return
				}
				cycles.Add(1)
			}
		})
	}
	all.Wait()
	return float64(cycles.Load()) / time.Since(began).Seconds()
}

// benchWorkers has 64 goroutines make b.N cycles.
func benchWorkers(ctx context.Context, b *testing.B, m *zklock.Mutex) float64 {
	const workers = 64
	var all sync.WaitGroup
	b.ResetTimer()
	for i := range workers {
		all.Go(func() {
			for n := i; n < b.N; n += workers {
				if err := benchCycle(ctx, m); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	return float64(b.N) / b.Elapsed().Seconds()
}

// 64 goroutines of one process take turns at one lock: with the option, compared with a znode for each call. The ratio is that of
// cycles per second.
func BenchmarkLocalHandoff(b *testing.B) {
	benchNodes(b, func(b *testing.B, s *locktest.Site) {
		c, ctx := s.Client(b), locktest.Late(b)
		separate := c.Mutex(s.Path(b) + "/separate")
		require.NoError(b, benchCycle(ctx, separate))
		without := handoffRate(b, 64, handoffReference, func(int) error { return benchCycle(ctx, separate) })
		with := benchWorkers(ctx, b, c.Mutex(s.Path(b)+"/shared", zklock.WithHandoffs(100)))
		b.ReportMetric(with/without, "x-separate")
		b.ReportMetric(without, "separate/s")
	})
}
