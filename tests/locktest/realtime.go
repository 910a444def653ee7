package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zklock"
)

// Close closes clients all at once: one whose servers do not answer takes a second or two. Closing
// again, at the end of the test, does nothing.
func Close(tb testing.TB, clients ...*zklock.Client) {
	tb.Helper()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			if err := c.Close(); err != nil {
				tb.Error(err)
			}
		})
	}
	all.Wait()
}

// Millis rounds a duration for printing.
func Millis(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// Pass lets time pass. It is only for showing that something does not happen, because there is no
// event to wait for then.
func Pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// Aside is a Lock call in progress.
type Aside struct {
	hold   *zklock.Hold
	err    error
	cancel context.CancelFunc
	done   chan struct{} // closed when hold and err are set
}

// LockAside is AcquireAside for a mutex.
func LockAside(tb testing.TB, m *zklock.Mutex) *Aside { return AcquireAside(tb, m.Lock) }

// AcquireAside calls call in a goroutine, which Result or Abandon joins.
func AcquireAside(tb testing.TB, call Acquire) *Aside {
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	w := &Aside{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		_, w.hold, w.err = call(ctx)
	}()
	tb.Cleanup(func() { w.Abandon() })
	return w
}

// Result waits for the hold; Lock's own context bounds it.
func (w *Aside) Result(tb testing.TB) *zklock.Hold {
	tb.Helper()
	<-w.done
	require.NoError(tb, w.err)
	return w.hold
}

// Over reports whether the call has returned.
func (w *Aside) Over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Abandon ends the call's context and returns the call's error.
func (w *Aside) Abandon() error {
	w.cancel()
	<-w.done
	return w.err
}

// Children lists a directory. One that does not exist, or that the client's server has not seen
// yet, has none.
func Children(tb testing.TB, c *zklock.Client, path string) []string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	s, err := c.Session(ctx)
	require.NoError(tb, err)
	names, _, err := s.List(ctx, path)
	if !errors.Is(err, zk.ErrNoNode) {
		require.NoError(tb, err)
	}
	return names
}

// AwaitContenders waits until a lock has that many contenders.
func AwaitContenders(tb testing.TB, c *zklock.Client, path string, n int) {
	tb.Helper()
	ensemble.Until(tb, Bound, fmt.Sprintf("%d contenders at %s", n, path), func() error {
		if got := len(Children(tb, c, path)); got != n {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// Stalls measures, until the returned function is called, the longest time for which this process
// was kept from running: a bound on elapsed time has to allow for that on a busy machine.
func Stalls(tb testing.TB) func() time.Duration {
	stop, done := make(chan struct{}), make(chan struct{})
	var longest time.Duration // the goroutine's until done
	go func() {
		defer close(done)
		const every = 5 * time.Millisecond
		timer := time.NewTimer(every)
		defer timer.Stop()
		for last := time.Now(); ; {
			over := false
			select {
			case <-timer.C:
			case <-stop:
				over = true
			}
			now := time.Now()
			longest = max(longest, now.Sub(last)-every)
			if over { // also with the time since the last tick
				return
			}
			last = now
			timer.Reset(every)
		}
	}()
	halt := sync.OnceFunc(func() { close(stop); <-done })
	tb.Cleanup(halt)
	return func() time.Duration { halt(); return longest }
}
