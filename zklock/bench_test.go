package zklock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// How much heap a session and a waiting call may take. The stacks of their goroutines are not included, and are reported
// separately.
const (
	mostHeapPerSession = 300 << 10
	mostHeapPerWaiter  = 12 << 10
)

// benchSessions opens n clients, each with one lock, so that everything that a working session needs is counted, and returns
// what one of them takes.
func benchSessions(tb testing.TB, s *locktest.Site, n int) (heap, stack int64) {
	tb.Helper()
	dir := s.Path(tb)
	open := func(n int) []*zklock.Client {
		clients := make([]*zklock.Client, n)
		for i := range clients {
			clients[i] = s.Client(tb)
			locktest.Lock(tb, clients[i].Mutex(fmt.Sprint(dir, "/", n, "-", i)))
		}
		return clients
	}
	locktest.Close(tb, open(1)...) // what all share
	before := locktest.Used()
	clients := open(n)
	after := locktest.Used()
	locktest.Close(tb, clients...)
	return (after.Heap - before.Heap) / int64(n), (after.Stack - before.Stack) / int64(n)
}

// benchWaiters makes n calls of one client wait for one lock until all have settled, and returns what one of them takes.
func benchWaiters(tb testing.TB, s *locktest.Site, n int) (heap, stack int64) {
	tb.Helper()
	dir := s.Path(tb)
	keeper, c := s.Client(tb), s.Client(tb)
	hold := locktest.Lock(tb, keeper.Mutex(dir))
	m := c.Mutex(dir)
	wait := func(n int) (end func()) {
		ctx, cancel := context.WithTimeout(context.Background(), locktest.Bound)
		var calls sync.WaitGroup
		for range n {
			calls.Go(func() {
				if h, err := m.Lock(ctx); err == nil {
					tb.Errorf("got a lock that is held: %s", h.Node())
				}
			})
		}
		locktest.AwaitContenders(tb, keeper, dir, n+1)
		// Each waiter watches its predecessor's znode and, once it has settled, its own: in one session that is one watch for each
		// waiter's znode, and one more for the holder's.
		locktest.AwaitWatches(tb, s, n+1)
		return func() { cancel(); calls.Wait(); locktest.AwaitContenders(tb, keeper, dir, 1) }
	}
	wait(n)() // tables and buffers grow to a size that they keep
	before := locktest.Used()
	end := wait(n)
	after := locktest.Used()
	for range 5 { // until the reads of a longer wait are done
		locktest.Pass(2 * quietFor)
		if use := locktest.Used(); use.Heap < after.Heap {
			after = use
		}
	}
	end()
	locktest.Unlock(tb, hold)
	return (after.Heap - before.Heap) / int64(n), (after.Stack - before.Stack) / int64(n)
}

func TestHeapOfASessionAndOfAWaitingCall(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	s.Processes(t, "the servers' memory would be counted as ours")
	heap, stack := benchSessions(t, s, 50)
	t.Logf("a session takes %d KB of heap and %d KB of stack", heap>>10, stack>>10)
	require.LessOrEqual(t, heap, int64(mostHeapPerSession))
	heap, stack = benchWaiters(t, s, 1000)
	t.Logf("a waiting call takes %.1f KB of heap and %.1f KB of stack", float64(heap)/1024, float64(stack)/1024)
	require.LessOrEqual(t, heap, int64(mostHeapPerWaiter))
}

func BenchmarkHeapOfASession(b *testing.B) {
	s := locktest.SiteOf(b, 3)
	s.Processes(b, "the servers' memory would be counted as ours")
	heap, stack := benchSessions(b, s, 50)
	benchReport(b, heap, stack, "session")
}

func BenchmarkHeapOfAWaitingCall(b *testing.B) {
	s := locktest.SiteOf(b, 3)
	s.Processes(b, "the servers' memory would be counted as ours")
	heap, stack := benchWaiters(b, s, 1000)
	benchReport(b, heap, stack, "waiter")
}

// benchReport prints a size that was measured once, whatever b.N is.
func benchReport(b *testing.B, heap, stack int64, of string) {
	b.ReportMetric(float64(heap), "heap-B/"+of)
	b.ReportMetric(float64(stack), "stack-B/"+of)
	b.ReportMetric(0, "ns/op")
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
	h, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return h.Unlock(ctx)
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

func BenchmarkBusyTryLock(b *testing.B) {
	benchNodes(b, func(b *testing.B, s *locktest.Site) {
		dir, ctx := s.Path(b), locktest.Late(b)
		hold := locktest.Lock(b, s.Client(b).Mutex(dir))
		m := s.Client(b).Mutex(dir)
		for b.Loop() {
			if _, err := m.TryLock(ctx); err == nil {
				b.Fatal("got a lock that is held")
			}
		}
		locktest.Unlock(b, hold)
	})
}
