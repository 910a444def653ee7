package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// What a session with a lock and a waiting call take of the heap, the in-process server's part included. (The stacks of
// their goroutines are not.)
func TestHeapOfASessionAndOfAWaitingCall(t *testing.T) {
	const sessions, waiters = 50, 1000
	locktest.SimulateAlone(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks")
		locked := func(from, n int) {
			for i := range n {
				s.Lock(s.Client().Mutex(fmt.Sprint(dir, "/", from+i)))
			}
			time.Sleep(time.Second)
		}
		locked(0, 1) // what all share
		before := heap()
		locked(1, sessions)
		each := (heap() - before) / sessions
		t.Logf("a session takes %.1f KB of heap", float64(each)/1024)
		require.LessOrEqual(t, each, int64(100<<10))

		m := s.Client().Mutex(dir + "/0")
		wait := func() (end func()) {
			ctx, cancel := context.WithCancel(s.Context())
			var calls sync.WaitGroup
			for range waiters {
				calls.Go(func() {
					if _, _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
						s.Error(err)
					}
				})
			}
			time.Sleep(time.Minute) // until all have queued, and the reads of a longer wait are done
			return func() { cancel(); calls.Wait(); time.Sleep(time.Second) }
		}
		wait()() // tables and buffers grow to a size that they keep
		before = heap()
		end := wait()
		each = (heap() - before) / waiters
		t.Logf("a waiting call takes %.1f KB of heap", float64(each)/1024)
		require.LessOrEqual(t, each, int64(8<<10))
		end()
	})
}

// benchNodes runs a benchmark against one node and against a quorum of three.
func benchNodes(b *testing.B, bench func(b *testing.B, s *locktest.Site)) {
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			s := locktest.SiteOf(b, nodes)
			b.ReportAllocs()
			bench(b, s)
		})
	}
}

// benchCycle is a Lock and its Unlock.
func benchCycle(ctx context.Context, m *zklock.Mutex) error {
	_, h, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return h.Unlock()
}

func BenchmarkLockUnlock(b *testing.B) {
	benchNodes(b, func(b *testing.B, s *locktest.Site) {
		m, ctx := s.Client(b).Mutex(s.Path(b)), locktest.Late(b)
		require.NoError(b, benchCycle(ctx, m))
		for b.Loop() {
			if err := benchCycle(ctx, m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Each cycle waits for another one: one operation is a hand-over.
func BenchmarkContendedLockUnlock(b *testing.B) {
	for _, clients := range []int{2, 16} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			benchNodes(b, func(b *testing.B, s *locktest.Site) {
				dir, ctx := s.Path(b), locktest.Late(b)
				all := make([]*zklock.Mutex, clients)
				for i := range all {
					all[i] = s.Client(b).Mutex(dir)
				}
				require.NoError(b, benchCycle(ctx, all[0]))
				b.ResetTimer()
				var workers sync.WaitGroup
				for i, m := range all {
					workers.Go(func() {
						for n := i; n < b.N; n += clients {
							if err := benchCycle(ctx, m); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				workers.Wait()
			})
		})
	}
}

// Different locks in one session: how well the requests of many calls are grouped.
func BenchmarkLockUnlockManyLocks(b *testing.B) {
	benchNodes(b, func(b *testing.B, s *locktest.Site) {
		c, dir, ctx := s.Client(b), s.Path(b), locktest.Late(b)
		const locks = 64
		for i := range locks {
			require.NoError(b, benchCycle(ctx, c.Mutex(fmt.Sprint(dir, "/", i))))
		}
		b.ResetTimer()
		var workers sync.WaitGroup
		for i := range locks {
			m := c.Mutex(fmt.Sprint(dir, "/", i))
			workers.Go(func() {
				for n := i; n < b.N; n += locks {
					if err := benchCycle(ctx, m); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		workers.Wait()
	})
}
