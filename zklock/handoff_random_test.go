package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// handoffSeedEnv selects one seed, as a failure reports it.
const handoffSeedEnv = "ZKLOCK_HANDOFF_SEED"

// dice are one goroutine's: what it draws does not depend on the others.
type dice struct{ *rand.Rand }

func newDice(seed, goroutine uint64) dice { return dice{rand.New(rand.NewPCG(seed, 7<<32+goroutine))} }

func (d dice) millis(n int) time.Duration { return time.Duration(d.IntN(n)) * time.Millisecond }

// chaosHold is a hold as the test saw it.
type chaosHold struct {
	h        *zklock.Hold
	client   int
	from, to time.Time // until the context had ended; zero: not yet
	end      error
}

// chaos is a run: several processes, some with local handoff, take turns at one lock under faults.
type chaos struct {
	*locktest.Sim
	clients []*locktest.Client
	shared  []bool

	mu     sync.Mutex // guards what follows
	holds  []*chaosHold
	forced map[string]bool // znodes that were removed by force: their holders may be notified late
}

// options are those of all goroutines of process i.
func (c *chaos) options(d dice, i int) []zklock.LockOption {
	if !c.shared[i] {
		return nil
	}
	return []zklock.LockOption{zklock.WithLocalHandoff()}
}

// acquired records a hold, and requires that there is no other.
func (c *chaos) acquired(h *zklock.Hold, client int) *chaosHold {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := &chaosHold{h: h, client: client, from: time.Now()}
	for _, was := range c.holds {
		if was.to.IsZero() && !c.forced[was.h.Node()] && !c.forced[h.Node()] && was.h.Context().Err() == nil && h.Context().Err() == nil {
			c.Errorf("%d holds with token %d while %d does with %d", client, h.Token(), was.client, was.h.Token())
		}
	}
	c.holds = append(c.holds, now)
	return now
}

// released records the end of a hold's context.
func (c *chaos) released(now *chaosHold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now.to, now.end = time.Now(), context.Cause(now.h.Context())
}

// work is one goroutine of process i.
func (c *chaos) work(d dice, i int, opts []zklock.LockOption) {
	for range 4 + d.IntN(5) {
		o := append([]zklock.LockOption(nil), opts...)
		if d.IntN(4) == 0 {
			o = append(o, zklock.WithMaxHold(time.Duration(1+d.IntN(40))*time.Millisecond))
		}
		m := c.clients[i].Mutex("/l", o...)
		ctx, cancel := context.WithTimeout(c.Context(), 20*time.Minute)
		if d.IntN(4) == 0 {
			cancel()
			ctx, cancel = context.WithTimeout(c.Context(), d.millis(400))
		}
		lock := m.Lock
		if d.IntN(8) == 0 {
			lock = m.TryLock
		}
		_, h, err := lock(ctx)
		if err != nil {
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, zklock.ErrBusy) {
				c.Error(err)
			}
			continue
		}
		now, ended := c.acquired(h, i), make(chan struct{})
		context.AfterFunc(h.Context(), func() { c.released(now); close(ended) })
		if d.IntN(20) == 0 { // it hangs until its context ends
			select {
			case <-h.Context().Done():
			case <-time.After(time.Minute):
			}
		} else {
			select {
			case <-h.Context().Done():
			case <-time.After(d.millis(60)):
			}
		}
		if d.IntN(10) == 0 {
			if err := h.Check(ctx); err != nil && !errors.Is(err, zklock.ErrLost) && !errors.Is(err, context.DeadlineExceeded) {
				c.Error(err)
			}
		}
		if err := h.Unlock(); err != nil && !errors.Is(err, zklock.ErrLost) {
			c.Error(err)
		}
		if h.Context().Err() == nil {
			c.Error("released, and its context has not ended")
		}
		<-ended
		cancel()
		time.Sleep(d.millis(30) * time.Duration(d.IntN(2)))
	}
}

// strike makes one fault.
func (c *chaos) strike(d dice) {
	victim := c.clients[d.IntN(len(c.clients))]
	info, err := victim.Session(c.Context())
	if err != nil {
		c.Error(err)
		return
	}
	id := info.ID()
	force := func(node string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forced[node] = true
	}
	switch d.IntN(9) {
	case 0:
		c.Server.DropConnections()
	case 1:
		for _, name := range c.Server.Children("/l") {
			if n, ok := c.Server.Node("/l/" + name); !ok || n.Stat.EphemeralOwner == id {
				force("/l/" + name)
			}
		}
		if err := c.Server.Expire(id); err != nil && !errors.Is(err, fault.CodeUnknownSession) {
			c.Error(err)
		}
	case 2, 3:
		names := locktest.Contenders(c.Server.Children("/l")) // in line, as their names are not the seed's
		if len(names) == 0 {
			return
		}
		node := "/l/" + names[d.IntN(len(names))]
		force(node)
		if err := c.Server.Delete(node); err != nil && !errors.Is(err, fault.CodeNoNode) {
			c.Error(err)
		}
	case 4:
		in := c.Server.Inject([]fault.Fault{fault.Freeze(), fault.FreezeReplies(), fault.FreezeRequests()}[d.IntN(3)].Session(id))
		time.Sleep(d.millis([]int{300, 15000}[d.IntN(2)]))
		in.Remove()
	case 5:
		c.Server.Leader().Down()
		time.Sleep(d.millis(2000))
		c.Server.Leader().Up()
	default:
		op := []fault.Op{fault.OpCreate, fault.OpDelete, fault.OpSetWatches, fault.OpGetChildren2, fault.OpSync}[d.IntN(5)]
		failure := []fault.Fault{fault.CloseAfter(), fault.CloseBefore(), fault.DelayReply(d.millis(200)), fault.Delay(d.millis(200))}[d.IntN(4)]
		c.Server.Inject(failure.Op(op).Session(id).Times(1 + d.IntN(2)))
	}
}

// judge checks all holds at the end. A token belongs to one process and one znode; tokens do not fall from one hold to the next,
// and grow after a loss.
func (c *chaos) judge() {
	for i, a := range c.holds {
		for _, b := range c.holds[i+1:] {
			if b.h.Token() == a.h.Token() {
				require.Equal(c, a.h.Node(), b.h.Node())
				require.Equal(c, a.client, b.client)
				require.True(c, c.shared[a.client], "without the option each hold has a token of its own")
				require.ErrorIs(c, a.end, zklock.ErrUnlocked, "token %d after a loss", a.h.Token())
			}
			if c.forced[a.h.Node()] || c.forced[b.h.Node()] {
				continue
			}
			require.False(c, b.from.Before(a.to), "%d (token %d) held from %v, when %d (token %d) did until %v", b.client, b.h.Token(), b.from,
				a.client, a.h.Token(), a.to)
			require.GreaterOrEqual(c, b.h.Token(), a.h.Token())
		}
	}
}

func handoffChaos(t *testing.T, seed uint64) (holds, handed int) {
	locktest.SimulateAlone(t, func(s *locktest.Sim) {
		c, d := &chaos{Sim: s, forced: map[string]bool{}}, newDice(seed, 0)
		for range 2 + d.IntN(2) {
			c.clients = append(c.clients, s.Client())
			c.shared = append(c.shared, len(c.shared) == 0 || d.IntN(3) > 0)
		}
		s.Dir("/l")
		synctest.Wait()
		before := locktest.Goroutines()
		var workers sync.WaitGroup
		for i := range c.clients {
			opts := c.options(d, i)
			for n := range 2 + d.IntN(4) {
				workers.Go(func() { c.work(newDice(seed, uint64(1+8*i+n)), i, opts) })
			}
		}
		over, struck := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(struck)
			for {
				select {
				case <-over:
					return
				case <-time.After(d.millis(300)):
					c.strike(d)
				}
			}
		}()
		workers.Wait()
		close(over)
		<-struck
		time.Sleep(2 * time.Minute) // sessions that are over have been deleted, and idle times have passed
		clean(s, "/l")
		for _, client := range c.clients {
			require.Zero(s, zklock.LocalQueues(client.Client))
			st := client.Status()
			require.Empty(s, st.Holds)
			require.Empty(s, st.Waits)
		}
		require.Equal(s, before, locktest.Goroutines())
		c.judge()
		holds = len(c.holds)
		for i := 1; i < len(c.holds); i++ {
			if c.holds[i].h.Token() == c.holds[i-1].h.Token() {
				handed++
			}
		}
	})
	return holds, handed
}

func TestLocalHandoffWhileEverythingGoesWrong(t *testing.T) {
	if text := os.Getenv(handoffSeedEnv); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		handoffChaos(t, seed)
		return
	}
	runs := uint64(60)
	if locktest.Long() {
		runs = 5000
	}
	var holds, handed atomic.Int64
	var failed atomic.Bool // one failure is enough
	t.Run("seeds", func(t *testing.T) {
		for seed := range runs {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Cleanup(func() { failed.Store(failed.Load() || t.Failed()) })
				locktest.SayHowToRepeat(t, fmt.Sprintf("%s=%d -run '^TestLocalHandoffWhileEverythingGoesWrong$'", handoffSeedEnv, seed))
				if t.Parallel(); failed.Load() {
					return
				}
				n, h := handoffChaos(t, seed)
				holds.Add(int64(n))
				handed.Add(int64(h))
			})
		}
	})
	require.Greater(t, handed.Load(), holds.Load()/10, "of %d holds", holds.Load())
}
