package hardened_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

func TestLocksWorkThroughAnObserver(t *testing.T) {
	e := ensemble.Start(t, 3, ensemble.WithObserver())
	observer := e.Nodes[2]
	require.Equal(t, "observer", observer.Mode())
	life(t, observer.Addr(), e.Path(t))
}

// A server without a quorum that serves reads cannot serve locks.
func TestTheClientLeavesAReadOnlyServerForOneThatWrites(t *testing.T) {
	e := ensemble.Start(t, 3, ensemble.WithJVM("-Dreadonlymode.enabled=true"))
	e.NeedControl(t)
	alone := e.Followers(t)[0]
	c := dial(t, e.Connect())
	e.Isolate(alone)
	ensemble.Until(t, soon, "a read-only server", func() error {
		if mode := alone.Mode(); mode != "read-only" {
			return fmt.Errorf("it is %q", mode)
		}
		return nil
	})
	const said = "without an answer to the handshake"
	for limit := 3 * time.Second; ; limit *= 2 {
		// the time doubles with each trial: a busy machine's servers are slow
		_, err := zklock.Dial(locktest.Within(t, limit), alone.Addr())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if limit > soon || strings.Contains(err.Error(), said) {
			require.ErrorContains(t, err, said)
			break
		}
	}

	_, hold, err := c.Mutex(e.Path(t)).Lock(locktest.Within(t, soon))
	require.NoError(t, err)
	s, err := unsealed.Session(locktest.Within(t, soon), c)
	require.NoError(t, err)
	require.NotEqual(t, alone.Addr(), s.Server())
	require.NoError(t, hold.Unlock())
}

// counter is a znode that several clients increment under a lock.
type counter struct {
	path, lock     string
	done, doubtful atomic.Int64
	last           atomic.Int64 // token of the latest turn
}

// work increments until stop is closed. Increments that a lost hold or a broken connection leaves
// in doubt are counted separately.
func (n *counter) work(ctx context.Context, c *zklock.Client, stop <-chan struct{}) error {
	for m := c.Mutex(n.lock); ; {
		select {
		case <-stop:
			return nil
		default:
		}
		_, hold, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		if before := n.last.Swap(int64(hold.Token())); before >= int64(hold.Token()) {
			return fmt.Errorf("token %d after %d", hold.Token(), before)
		}
		if err := n.up(ctx, c, hold); err != nil && !errors.Is(err, zklock.ErrLost) &&
			!errors.Is(err, session.ErrConnection) {
			return err
		}
		if err := hold.Unlock(); err != nil && !errors.Is(err, zklock.ErrLost) {
			return err
		}
	}
}

func (n *counter) up(ctx context.Context, c *zklock.Client, hold *zklock.Hold) error {
	s, err := unsealed.Session(ctx, c)
	if err != nil {
		return err
	}
	data, stat, err := s.Get(ctx, n.path)
	if err != nil {
		return err
	}
	value, err := strconv.Atoi(string(data))
	if err != nil {
		return err
	}
	_, err = hold.Multi(ctx,
		session.OpSet{Path: n.path, Data: []byte(strconv.Itoa(value + 1)), Version: stat.Version})
	switch {
	case err == nil:
		n.done.Add(1)
	case errors.Is(err, session.ErrUnknownOutcome):
		n.doubtful.Add(1)
	}
	return err
}

// Three servers are restarted one after the other, leader last, with the software of a newer
// release, while four clients take turns; nothing is lost, and nothing is done twice.
func TestTurnsGoOnThroughARollingUpgrade(t *testing.T) {
	newer, err := exec.Command("../../scripts/newer.sh").Output()
	if err != nil {
		// not Debian, or the newest is installed
		t.Skip("no newer release of ZooKeeper to be had: scripts/newer.sh says why")
	}
	home := strings.TrimSpace(string(newer))
	e := ensemble.Start(t, 3)
	e.NeedControl(t)
	from, err := e.Nodes[0].Version()
	require.NoError(t, err)
	s, ctx := administrator(t, e), locktest.Within(t, 4*time.Minute)
	n := &counter{path: e.Path(t), lock: e.Path(t) + "-lock"}
	_, err = s.Create(ctx, n.path, []byte("0"), session.Persistent, session.WorldACL())
	require.NoError(t, err)

	stop, errs := make(chan struct{}), make(chan error, 4)
	var working sync.WaitGroup
	for range 4 {
		c := dial(t, e.Connect())
		working.Go(func() { errs <- n.work(ctx, c, stop) })
	}
	for _, node := range append(e.Followers(t), e.Leader(t)) {
		turns := n.done.Load()
		require.NoError(t, node.Use(home))
		node.Restart(t)
		ensemble.Until(t, soon, "ten more turns", func() error {
			if now := n.done.Load(); now < turns+10 {
				return fmt.Errorf("%d of them", now-turns)
			}
			return nil
		})
	}
	close(stop)
	working.Wait()
	for range 4 {
		require.NoError(t, <-errs)
	}
	to, err := e.Nodes[0].Version()
	require.NoError(t, err)
	data, _, err := s.Get(ctx, n.path)
	require.NoError(t, err)
	value, err := strconv.ParseInt(string(data), 10, 64)
	require.NoError(t, err)
	t.Logf("%s to %s: %d turns, %d in doubt", from, to, n.done.Load(), n.doubtful.Load())
	assert.GreaterOrEqual(t, value, n.done.Load())
	assert.LessOrEqual(t, value, n.done.Load()+n.doubtful.Load())
}
