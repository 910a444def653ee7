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

// readersInside checks who reads and writes.
type readersInside struct {
	mu      sync.Mutex // guards what follows
	readers map[*zklock.Hold]bool
	writer  *zklock.Hold
	last    zklock.Token // of a writer
	most    int          // readers at once
	writes  int
	reads   int
	broken  []error
}

func (x *readersInside) wrong(format string, args ...any) {
	x.broken = append(x.broken, fmt.Errorf(format, args...))
}

// live returns how many hold for reading; those whose hold has ended by itself do not count.
func (x *readersInside) live() (n int) {
	for h := range x.readers {
		if h.Context().Err() == nil {
			n++
		}
	}
	return n
}

func (x *readersInside) alone(h *zklock.Hold) {
	if w := x.writer; w != nil && w != h && w.Context().Err() == nil {
		x.wrong("%s holds while %s writes", h.Node(), w.Node())
	}
}

// write records that h has begun to write.
func (x *readersInside) write(h *zklock.Hold) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.alone(h)
	if n := x.live(); n > 0 {
		x.wrong("%s writes while %d read", h.Node(), n)
	}
	if h.Token() <= x.last {
		x.wrong("token %d of %s came after %d", h.Token(), h.Node(), x.last)
	}
	x.writer, x.last = h, h.Token()
	x.writes++
}

// read records that h has begun to read.
func (x *readersInside) read(h *zklock.Hold) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.alone(h)
	x.readers[h] = true
	x.reads++
	x.most = max(x.most, x.live())
}

// leave records that h is about to be released or downgraded.
func (x *readersInside) leave(h *zklock.Hold) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writer == h {
		if n := x.live(); n > 0 && h.Context().Err() == nil {
			x.wrong("%d read while %s still writes", n, h.Node())
		}
		x.writer = nil
	}
	delete(x.readers, h)
}

// Many clients of three servers read and write, some giving up, some downgrading. A writer never holds beside another
// client, and readers do overlap.
func TestManyReadersAndWritersNeverHaveAWriterBesideAnyone(t *testing.T) {
	const clients = 32
	s := locktest.SiteBeside(t, 3)
	path := s.Path(t)
	inside := readersInside{readers: map[*zklock.Hold]bool{}}
	var workers sync.WaitGroup
	all := make([]*zklock.Client, clients)
	for i := range all {
		all[i] = s.Client(t)
	}
	ctx := locktest.Late(t)
	end := time.Now().Add(loadTime())
	for i, c := range all {
		workers.Go(func() {
			m, rnd := c.RWMutex(path), rand.New(rand.NewPCG(uint64(i), 5))
			for time.Now().Before(end) {
				if err := readOrWrite(ctx, m, rnd, &inside, end); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	require.NoError(t, errors.Join(inside.broken...))
	require.Greater(t, inside.most, 1, "readers overlap")
	require.Positive(t, inside.writes)
	t.Logf("%d reads and %d writes by %d clients, up to %d readers at once", inside.reads, inside.writes, clients, inside.most)
	locktest.AwaitContenders(t, all[0], path, 0)
}

// readOrWrite reads or writes once.
func readOrWrite(ctx context.Context, m *zklock.RWMutex, rnd *rand.Rand, inside *readersInside, end time.Time) error {
	patience := locktest.Bound
	if rnd.IntN(10) == 0 { // this one soon gives up
		patience = time.Duration(rnd.IntN(20)) * time.Millisecond
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	write := rnd.IntN(4) == 0
	call, note := m.RLock, inside.read
	if write {
		call, note = m.Lock, inside.write
	}
	h, err := call(bounded)
	if errors.Is(err, context.DeadlineExceeded) && (patience < locktest.Bound || time.Now().After(end.Add(locktest.Bound/2))) {
		return nil
	}
	if err != nil {
		return err
	}
	note(h)
	work := func() { locktest.Pass(time.Duration(rnd.IntN(3)) * time.Millisecond) }
	work()
	inside.leave(h)
	if write && rnd.IntN(3) == 0 {
		r, err := m.Downgrade(ctx, h)
		if err != nil {
			return err
		}
		inside.read(r)
		work()
		inside.leave(r)
		h = r
	}
	return h.Unlock(ctx)
}
