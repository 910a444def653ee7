package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A neighbour is another client of the same ensemble, which may create znodes in a lock's directory and nothing else.
// It may name, number, fill and protect them at will. As any contender it can make others wait; it must not be able to
// make two of them hold, to end a hold, or to keep a lock taken after it has gone.
//
// (internal/simulation has one too, beside all other faults; here the ensemble's access lists restrict it.)

// neighbourKinds are all kinds of locks: a call takes a lock on paths and returns how much of it it has taken.
var neighbourKinds = map[string]struct {
	size int // how much may be held at once
	mark []string
	take func(ctx context.Context, c *zklock.Client, rnd *rand.Rand, opts []zklock.LockOption) (h *zklock.Hold, much int, err error)
}{
	"mutex": {1, []string{"-lock-"}, func(ctx context.Context, c *zklock.Client, _ *rand.Rand, opts []zklock.LockOption) (*zklock.Hold, int, error) {
		h, err := c.Mutex(dir, opts...).Lock(ctx)
		return h, 1, err
	}},
	"local handoff": {1, []string{"-lock-"}, func(ctx context.Context, c *zklock.Client, _ *rand.Rand, opts []zklock.LockOption) (*zklock.Hold, int, error) {
		h, err := c.Mutex(dir, append(opts, zklock.WithLocalHandoff(3), zklock.WithIdleKeep(50*time.Millisecond))...).Lock(ctx)
		return h, 1, err
	}},
	"several": {1, []string{"-lock-"}, func(ctx context.Context, c *zklock.Client, _ *rand.Rand, opts []zklock.LockOption) (*zklock.Hold, int, error) {
		h, err := c.MultiLock([]string{dir, "/locks/b"}, opts...).Lock(ctx)
		return h, 1, err
	}},
	"election": {1, []string{"-lock-"}, func(ctx context.Context, c *zklock.Client, _ *rand.Rand, opts []zklock.LockOption) (*zklock.Hold, int, error) {
		l, err := c.Election(dir, opts...).Campaign(ctx, nil)
		if err != nil {
			return nil, 1, err
		}
		return l.Hold, 1, nil
	}},
	"readers and writers": {100, []string{"-__READ__", "-__WRIT__"}, func(ctx context.Context, c *zklock.Client, rnd *rand.Rand, opts []zklock.LockOption) (*zklock.Hold, int, error) {
		m := c.RWMutex(dir, opts...)
		if rnd.IntN(2) == 0 {
			h, err := m.RLock(ctx)
			return h, 1, err
		}
		h, err := m.Lock(ctx)
		return h, 100, err
	}},
	"semaphore": {3, []string{"-lease-1-", "-lease-3-", "-lease-1000000000-"}, func(ctx context.Context, c *zklock.Client, rnd *rand.Rand, opts []zklock.LockOption) (*zklock.Hold, int, error) {
		n := 1 + rnd.IntN(3)
		h, err := c.Semaphore(dir, 3, opts...).Acquire(ctx, n)
		return h, n, err
	}},
}

// Scenario 48: whatever it creates, no two hold at once, no hold ends, and when it has gone every client gets the lock.
func TestANeighbourWhoMayOnlyCreateChangesNoOrder(t *testing.T) {
	seeds := uint64(10)
	if os.Getenv("ZKLOCK_LONG") != "" {
		seeds = 200
	}
	for kind := range neighbourKinds {
		t.Run(kind, func(t *testing.T) {
			for seed := range seeds {
				if !t.Run(fmt.Sprint(seed), func(t *testing.T) { besideANeighbour(t, kind, seed) }) {
					return
				}
			}
		})
	}
}

// besideANeighbour makes three clients take a lock repeatedly, and in the end without the neighbour.
func besideANeighbour(t *testing.T, kind string, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		acl := append(zk.DigestACL(zk.PermAll, "we", "secret"), zk.WorldACL(zk.PermCreate)...)
		opts := []zklock.LockOption{zklock.WithACL(acl...)}
		k := neighbourKinds[kind]
		var (
			mu     sync.Mutex
			inside int
			calm   = make(chan struct{})
			all    sync.WaitGroup
		)
		for i := range 3 {
			c, err := zklock.Dial(t.Context(), srv.Addr(), zklock.WithDialer(srv.Dial), zklock.WithAuth("digest", []byte("we:secret")))
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			turn := func(limit time.Duration, must bool) {
				ctx, done := context.WithTimeout(t.Context(), limit)
				defer done()
				h, much, err := k.take(ctx, c, rnd, opts)
				if err != nil {
					if must || ctx.Err() == nil && !errors.Is(err, zklock.ErrConflict) {
						t.Errorf("%s of client %d: %v", kind, i, err)
					}
					return
				}
				mu.Lock()
				if inside += much; inside > k.size {
					t.Errorf("%d of %d held at once, the last by %s", inside, k.size, h.Node())
				}
				mu.Unlock()
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
				mu.Lock()
				inside -= much
				mu.Unlock()
				if err := h.Err(); err != nil {
					t.Errorf("a hold has ended: %v", err)
				}
				if err := h.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
			turn(time.Minute, true) // creates the directory
			all.Go(func() {
				for range 12 {
					turn(time.Duration(1+rnd.IntN(6000))*time.Millisecond, false)
				}
				<-calm
				turn(time.Minute, true)
			})
		}
		for i := range 4 {
			annoy(t, srv, k.mark, rand.New(rand.NewPCG(seed, 100+uint64(i))))
		}
		close(calm)
		all.Wait()
		time.Sleep(time.Second) // a place may be kept
		require.Empty(t, srv.Children(dir))
	})
}

// annoy is one session of the neighbour's. It may not delete anything: its znodes end with the session.
func annoy(t *testing.T, srv *zktest.Server, marks []string, rnd *rand.Rand) {
	s, err := session.Open(t.Context(), srv.Addr(), session.Config{Dial: srv.Dial})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for range 4 + rnd.IntN(4) {
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		node, _ := srv.Node(dir)
		next := int64(node.Stat.Cversion+node.Stat.NumChildren) / 2 // number
		near := next + int64(rnd.IntN(8)) - 5
		number := []int64{math.MaxInt32, math.MinInt32, -1, max(near, 0), int64(int32(rnd.Uint32())), 1 << 40,
			math.MinInt32 + max(near, 0), math.MinInt32 + max(near, 0)}[rnd.IntN(8)] // the last are half the circle away from others
		head := fmt.Sprintf("_c_%016x", rnd.Uint64())
		mark := marks[rnd.IntN(len(marks))]
		if rnd.IntN(20) == 0 {
			mark = "-__WRIT__"
		}
		name, mode := fmt.Sprintf("%s%s%010d", head, mark, number), session.Ephemeral
		if rnd.IntN(4) == 0 {
			name, mode = head+mark, session.EphemeralSequential
		}
		data := make([]byte, []int{0, 0, 30, 0, 30, 0, 30, 900 << 10}[rnd.IntN(8)])
		acl := [][]zk.ACL{zk.WorldACL(zk.PermAll), zk.WorldACL(zk.PermCreate)}[rnd.IntN(2)] // may not be read
		if _, err := s.Create(t.Context(), dir+"/"+name, data, mode, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Errorf("the neighbour: %v", err)
		}
	}
	names := srv.Children(dir)
	if len(names) > 0 {
		require.ErrorIs(t, s.Delete(t.Context(), dir+"/"+names[0], -1), zk.ErrNoAuth, "it may only create")
	}
}
