package handoff_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/zklock/internal/handoff"
)

// progress notes what a call is told while it waits.
type progress struct {
	free    chan struct{} // capacity 1: empty while the call is busy with what it was told
	lines   []queue.Line
	retried []error
}

func (p *progress) Queued(at queue.Line) {
	<-p.free
	p.lines = append(p.lines, at)
	p.free <- struct{}{}
}

func (p *progress) Retried(cause error) {
	<-p.free
	p.retried = append(p.retried, cause)
	p.free <- struct{}{}
}
func (*progress) Warn(string, ...any) bool { return true }

// bench has the local queues of a client whose places at the ensemble are what acquire returns.
type bench struct {
	*testing.T
	queues  *handoff.Queues
	running sync.WaitGroup
	proceed chan struct{} // closed: places may be given up
	lock    *handoff.Config
}

type acquire func(ctx context.Context, try bool, c queue.Caller) (*queue.Ticket, error)

func newBench(t *testing.T, acquire acquire) *bench {
	b := &bench{T: t, queues: &handoff.Queues{}, proceed: make(chan struct{})}
	b.lock = &handoff.Config{
		Key:         handoff.Key{Path: "/locks/a"},
		Self:        "me",
		Context:     t.Context(),
		Logger:      slog.New(slog.DiscardHandler),
		Go:          func(fn func()) bool { b.running.Go(fn); return true },
		Acquire:     acquire,
		GiveUp:      func(context.Context, *queue.Ticket) { <-b.proceed },
		Unreachable: func(context.Context, string) error { return nil },
	}
	return b
}

type acquireLocal func(context.Context, *handoff.Config, queue.Caller) (*handoff.Turn, error)

// start begins a call, and returns when that waits. It returns what the call is told, a function
// that cancels it and returns its error, and the channel that gets that error.
func (b *bench) start(call acquireLocal) (p *progress, cancel func() error, over chan error) {
	ctx, stop := context.WithCancel(b.Context())
	p, over = &progress{free: make(chan struct{}, 1)}, make(chan error, 1)
	p.free <- struct{}{}
	go func() {
		_, err := call(ctx, b.lock, p)
		over <- err
	}()
	synctest.Wait()
	return p, func() error { stop(); return <-over }, over
}

var inFront = queue.Line{Ahead: 1, Node: "/locks/a/other", Owner: "other"}

// wantedByNone is the Acquire of a process whose only call leaves at the moment at which its place
// comes to hold.
func wantedByNone() acquire {
	calls := 0
	return func(ctx context.Context, try bool, c queue.Caller) (*queue.Ticket, error) {
		if calls++; calls == 1 {
			c.Queued(inFront)
			<-ctx.Done()
			return &queue.Ticket{}, nil
		}
		if try {
			return nil, queue.ErrBusy
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

// While a place is given up that no call wants, a call that comes is not behind the contender that
// was in its way: that one has gone.
func TestACallThatComesWhileAPlaceIsGivenUpIsBehindNoContenderThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, wantedByNone())
		first, cancel, _ := b.start(b.queues.Lock)
		require.Equal(t, []queue.Line{inFront}, first.lines)
		require.ErrorIs(t, cancel(), context.Canceled)
		synctest.Wait()

		second, cancel, _ := b.start(b.queues.Lock)
		require.Empty(t, second.lines)
		err := cancel()
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorAs(t, err, &queue.LineError{})
		close(b.proceed)
		b.running.Wait()
		require.Zero(t, b.queues.Len())
	})
}

// A call that is busy while several events come misses no step that was made again, hears of its
// latest place, and of the end.
func TestACallThatIsBusyMissesNoEventThatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, refused := errors.New("broken"), errors.New("refused")
		further := queue.Line{Ahead: 3, Node: "/locks/a/third", Owner: "third"}
		step := make(chan struct{})
		b := newBench(t, func(_ context.Context, _ bool, c queue.Caller) (*queue.Ticket, error) {
			c.Queued(inFront)
			<-step
			c.Queued(inFront)
			<-step
			c.Retried(broken)
			c.Queued(inFront)
			c.Queued(further)
			<-step
			c.Queued(inFront)
			<-step
			c.Retried(broken)
			return nil, refused
		})
		p, _, over := b.start(b.queues.Lock)
		for range 2 {
			<-p.free // the call is busy with the first event that comes
			step <- struct{}{}
			synctest.Wait()
			step <- struct{}{}
			synctest.Wait()
			p.free <- struct{}{}
			synctest.Wait()
		}
		require.Equal(t, []queue.Line{inFront, inFront, further, inFront}, p.lines)
		require.Equal(t, []error{broken, broken}, p.retried)
		require.ErrorIs(t, <-over, refused)
		require.Zero(t, b.queues.Len())
	})
}

// Scenario 81: a call comes while a place is being asked for on behalf of one that has left. The
// answer counts for both.
func TestARefusalDecidesAlthoughTheCallThatAskedHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, asked := errors.New("refused"), 0
		step := make(chan struct{})
		b := newBench(t, func(context.Context, bool, queue.Caller) (*queue.Ticket, error) {
			asked++
			<-step
			return nil, refused
		})
		_, cancel, _ := b.start(b.queues.Lock)
		require.ErrorIs(t, cancel(), context.Canceled)
		_, _, over := b.start(b.queues.Lock)
		close(step)
		require.Equal(t, refused, <-over)
		require.Equal(t, 1, asked)
		b.running.Wait()
	})
}
