package locktest

import (
	"context"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
	"github.com/zklock/locker/zktest"
)

// Bound is how long a test waits for an event: far longer than it takes, so that only an event that
// never happens fails, and shorter than the test command's own time limit, so that the failure
// names the event.
const Bound = 60 * time.Second

// Within returns a context that ends after d.
func Within(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	tb.Cleanup(cancel)
	return ctx
}

// patience bounds one call: more than any needs, in simulated time as in real time.
const patience = 5 * Bound

// Soon returns a context for calls that must return: it ends after five minutes.
func Soon(tb testing.TB) context.Context { return Within(tb, patience) }

// Late returns a context for work that takes minutes when the machine is slow.
func Late(tb testing.TB) context.Context { return Within(tb, 20*Bound) }

// Bubble runs fn with a server in simulated time; a goroutine that is left behind fails the test,
// unless it ends by itself within closing. Simulate is Bubble for tests that direct the clients'
// connections. Bubbles run beside each other, and not beside tests in real time.
func Bubble(t *testing.T, fn func(t *testing.T, srv *zktest.Server), opts ...zktest.Option) {
	t.Helper()
	beside(t)
	BubbleAlone(t, fn, opts...)
}

// forever is more simulated time than any test needs. It passes in seconds, despite all the
// heartbeats.
const forever = 4 * time.Hour

// LongTime is the simulated length of a hold, or of a wait, that is long: sixty session timeouts of
// Simulate's clients, and ten times the longest interval at which the library or the in-process
// server does anything by itself, a minute.
const LongTime = 10 * time.Minute

// closing is more than a session takes to end. Dial and session.Open, when they fail, return with
// their context, and join nothing: what they have started ends by itself.
const closing = 3 * time.Second

// BubbleAlone is Bubble beside no other test. A wait without an end fails it as well.
func BubbleAlone(t *testing.T, fn func(t *testing.T, srv *zktest.Server), opts ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hung := time.AfterFunc(forever, func() {
			debug.SetTraceback("all")
			panic(t.Name() + " waits for ever")
		})
		defer hung.Stop()
		t.Cleanup(func() { time.Sleep(closing) }) // the last one: the server has stopped
		fn(t, zktest.Run(t, append(opts, zktest.WithoutListener())...))
	})
}

// Dial opens a client of srv over memory, which is closed with the test.
func Dial(tb testing.TB, srv *zktest.Server, opts ...zklock.Option) *zklock.Client {
	tb.Helper()
	c, err := zklock.Dial(Soon(tb), srv.Addr(),
		append([]zklock.Option{zklock.WithoutLog(), zklock.WithDialer(srv.Dial)}, opts...)...)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	return c
}

// Acquire is a call that acquires a lock: Mutex.Lock, RWMutex.RLock, and so on.
type Acquire = func(context.Context) (context.Context, *zklock.Hold, error)

// Permits is the call that acquires n permits of a semaphore.
func Permits(m *zklock.Semaphore, n int) Acquire {
	return func(ctx context.Context) (context.Context, *zklock.Hold, error) {
		return m.Acquire(ctx, n)
	}
}

// Campaign is the call that campaigns with value.
func Campaign(e *zklock.Election, value string) Acquire {
	return func(ctx context.Context) (context.Context, *zklock.Hold, error) {
		return e.Campaign(ctx, []byte(value))
	}
}

// Lock acquires a mutex, which must succeed.
func Lock(tb testing.TB, m *zklock.Mutex) *zklock.Hold {
	tb.Helper()
	return Take(tb, m.Lock)
}

// Take acquires a lock of any kind, which must succeed.
func Take(tb testing.TB, call Acquire) *zklock.Hold {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, h, err := call(ctx)
	require.NoError(tb, err)
	return h
}

// Unlock releases a hold, which must succeed.
func Unlock(tb testing.TB, h *zklock.Hold) {
	tb.Helper()
	require.NoError(tb, h.Unlock())
}

// End waits for the end of a hold's context and returns the cause.
func End(h *zklock.Hold) error {
	<-h.Context().Done()
	return context.Cause(h.Context())
}

// Loss is the end of a hold, as its holder learned of it.
type Loss struct {
	At    time.Time
	Cause error
	Safe  time.Time // Hold.SafeUntil when the context had ended
}

// LossOf sends the hold's loss when its context has ended.
func LossOf(h *zklock.Hold) <-chan Loss {
	ch := make(chan Loss, 1)
	go func() { // ends with the hold
		<-h.Context().Done()
		ch <- Loss{time.Now(), context.Cause(h.Context()), h.SafeUntil()}
	}()
	return ch
}

// Queue returns the whole line of path.
func Queue(ctx context.Context, c *zklock.Client, path string) (line []admin.Contender, err error) {
	for k, err := range admin.Queue(ctx, c, path) {
		if err != nil {
			return nil, err
		}
		line = append(line, k)
	}
	return line, nil
}
