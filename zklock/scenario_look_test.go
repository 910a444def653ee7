package zklock_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
	"github.com/zklock/locker/zktest/fault"
)

// Scenario 50: a directory with very many contenders, or with contenders that have large data or
// long names. Waiting, Queue and Break work within their ctx, and no other hold of the client is
// lost.

// slowLine is a connection with a limited rate of replies, in bytes a second.
type slowLine struct {
	net.Conn
	rate int
}

func (l slowLine) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b[:min(len(b), 64<<10)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(l.rate))
	return n, err
}

// slowClient dials the server over a slowLine.
func slowClient(s *locktest.Sim, rate int, opts ...zklock.Option) *zklock.Client {
	s.Helper()
	opts = append(opts,
		zklock.WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
			conn, err := s.Server.Dial(network, addr, timeout)
			return slowLine{conn, rate}, err
		}))
	c, err := zklock.Dial(s.Context(), s.Server.Addr(), opts...)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, c.Close()) })
	return c
}

// slowHolder is a slow client that holds another lock, and must not lose it.
func slowHolder(s *locktest.Sim, rate int) *zklock.Client {
	s.Helper()
	c := slowClient(s, rate)
	other := s.Lock(c.Mutex("/other"))
	s.Cleanup(func() { require.NoError(s, other.Err()) })
	return c
}

// together makes n calls at once, and returns their errors.
func together(n int, call func(i int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = call(i) })
	}
	all.Wait()
	return errs
}

// errOf is the error of a call that acquires a lock.
func errOf(_ context.Context, _ *zklock.Hold, err error) error { return err }

// bulk is as much data as a znode may have.
var bulk = []byte(strings.Repeat("x", 1_000_000))

// neighbour makes n contenders with data in dir.
func plantData(s *locktest.Sim, dir string, n int, data []byte) {
	s.Helper()
	other := s.Stranger()
	for range n {
		_, err := other.Create(s.Context(), dir+"/x-lock-", data, session.EphemeralSequential,
			session.WorldACL())
		require.NoError(s, err)
	}
}

func TestScenario50_ManyWaitersBehindAHolderWithMuchDataCostNoOtherHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), slowHolder(s, 30_000_000)
		plantData(s, dir, 1, bulk)
		before := s.Server.Requests()[fault.OpGetData]
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		for _, err := range together(300, func(int) error {
			return errOf(c.Mutex(dir).Lock(ctx))
		}) {
			require.ErrorIs(s, err, context.DeadlineExceeded)
			require.ErrorContains(s, err, "x-lock-0000000000 (1000000 bytes of data)")
		}
		require.Zero(s, s.Server.Requests()[fault.OpGetData]-before)
	})
}

// The lists of many calls of one client on one lock: those of 600 calls take 10 MB, in half a
// minute.
func TestScenario50_ManyCallsOnOneLockCostNoOtherHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), slowHolder(s, 300_000)
		inside := 0
		for _, err := range together(600, func(int) error {
			// only the holder writes
			return c.Mutex(dir).Do(s.Context(), func(context.Context) error {
				inside++
				return nil
			})
		}) {
			require.NoError(s, err)
		}
		require.Equal(s, 600, inside)
	})
}

// One read of the holder's data serves all waiters of a client.
func TestManyWaitersReadTheHoldersDataOnce(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), s.Client()
		h := s.Lock(s.Client().Mutex(dir, zklock.WithOwner("somebody")))
		before := s.Server.Requests()[fault.OpGetData]
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		defer cancel()
		for _, err := range together(100, func(int) error {
			return errOf(c.Mutex(dir).Lock(ctx))
		}) {
			require.ErrorContains(s, err, "in line behind somebody (")
		}
		require.Equal(s, 1, s.Server.Requests()[fault.OpGetData]-before)
		s.Unlock(h)
	})
}

func TestScenario50_LookingAtManyContendersWithMuchDataCostsNoOtherHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), slowHolder(s, 10_000_000)
		const contenders = 100
		plantData(s, dir, contenders, bulk)
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		defer cancel()
		line, err := locktest.Queue(ctx, c, dir)
		require.NoError(s, err)
		require.Len(s, line, contenders)
		for _, k := range line {
			require.Empty(s, k.Data)
			require.Equal(s, len(bulk), k.Size)
		}
		require.NoError(s, admin.Evict(ctx, c, dir, line[contenders-1].Token))
		require.Len(s, s.Server.Children(dir), contenders-1)
		time.Sleep(20 * time.Second)
	})
}

// Data that are short enough to be read one by one are not all kept: Queue returns all rows, with
// the data for which there was room.
func TestQueueKeepsNoMoreDataThanThereIsRoomFor(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), slowHolder(s, 12_000_000)
		const contenders = 120
		plantData(s, dir, contenders, bulk[:200_000])
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		defer cancel()
		line, err := locktest.Queue(ctx, c, dir)
		require.NoError(s, err)
		kept := 0
		for i, k := range line {
			require.Equal(s, 200_000, k.Size)
			if kept += len(k.Data); i == 0 {
				require.Len(s, k.Data, k.Size)
			}
		}
		require.LessOrEqual(s, kept, 16<<20)
		require.Greater(s, kept, 15<<20)
		page, err := admin.ReadQueue(ctx, c, dir, contenders-3, 10)
		require.NoError(s, err)
		require.Len(s, page.Contenders, 3)
		require.Len(s, page.Contenders[2].Data, 200_000, "a page has room for it")
	})
}

func TestScenario50_VeryManyContendersAndLongNames(t *testing.T) {
	contenders := 20_000
	if locktest.Long() {
		contenders = 100_000
	}
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), slowHolder(s, 300*contenders)
		for i := range contenders {
			name := fmt.Sprintf("/_c_01234567-89ab-cdef-0123-456789abcdef-lock-%010d", i)
			if i%1000 == 0 {
				name = "/" + strings.Repeat("n", 4000+i%2000*6) + name[1:] // 4,000 or 10,000 more
			}
			require.NoError(s, s.Server.Create(dir+name, []byte("neighbour")))
		}
		require.NoError(s, s.Server.SetSequence(dir, int32(contenders)))

		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		defer cancel()
		_, _, err := c.Mutex(dir).Lock(ctx)
		require.ErrorIs(s, err, context.DeadlineExceeded)
		require.ErrorContains(s, err, fmt.Sprintf("%dst in line behind neighbour", contenders+1))

		began := time.Now()
		ctx, cancel = context.WithTimeout(s.Context(), 10*time.Second)
		defer cancel()
		line, err := locktest.Queue(ctx, c, dir)
		require.NoError(s, err)
		require.Len(s, line, contenders)
		require.True(s, line[0].Holds)
		require.False(s, line[1].Holds)
		s.Logf("the queue of %d: %v of a line of %d bytes/s", contenders, time.Since(began),
			300*contenders)

		page, err := admin.ReadQueue(ctx, c, dir, contenders-1000, 2)
		require.NoError(s, err)
		require.Equal(s, 1, page.Holding)
		require.Equal(s, contenders-1, page.Waiting)
		require.Equal(s, line[contenders-1000:contenders-998], page.Contenders)

		for _, at := range []int{contenders - 1000, 0} {
			// a name of 10,000 bytes more; and the holder
			require.NoError(s, admin.Evict(ctx, c, dir, line[at].Token))
			_, there := s.Server.Node(line[at].Node)
			require.False(s, there)
		}
	})
}

// Many calls of a client wait in one line, in which others come and go. They look again together,
// with a long list each; a free lock of the same client is taken and released meanwhile.
func TestTheLooksOfManyWaitersDelayNoOtherCall(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, neighbour := s.Dir("/l"), s.Client(), s.Client()
		s.Dir("/free")
		h := s.Lock(neighbour.Mutex(dir))
		s.Server.Inject(fault.DelayReply(10 * time.Millisecond).Session(c.SessionID()))
		ctx, cancel := context.WithCancel(s.Context())
		var all sync.WaitGroup
		for range 400 {
			all.Go(func() { _, _, _ = c.Mutex(dir).Lock(ctx) })
		}
		s.Until(time.Minute, "all wait", func() bool { return len(s.Server.Children(dir)) == 401 })
		all.Go(func() { // somebody comes and gives up, every two seconds
			for ctx.Err() == nil {
				short, done := context.WithTimeout(ctx, 2*time.Second)
				_, _, _ = neighbour.Mutex(dir).Lock(short)
				done()
			}
		})
		time.Sleep(8 * time.Second) // the burst of their coming is over
		var slowest time.Duration
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(
			50 * time.Millisecond) {
			asked := time.Now()
			s.Unlock(s.Lock(c.Mutex("/free")))
			slowest = max(slowest, time.Since(asked))
		}
		cancel()
		all.Wait()
		s.Unlock(h)
		require.Less(s, slowest, 300*time.Millisecond)
	})
}
