package handoff_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/handoff"
	"github.com/zklock/locker/recipe"
)

// progress notes what a call is told while it waits.
type progress struct {
	mu    sync.Mutex
	lines []recipe.Line
}

func (p *progress) Queued(at recipe.Line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, at)
}

func (p *progress) Retried(error) {}

// The last waiting call leaves as the process's place comes to hold. While that place is given up, a call that comes then is not
// behind the contender that was in the way of it: that one has gone.
func TestACallThatComesWhileAPlaceIsGivenUpIsBehindNoContenderThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := recipe.Line{Ahead: 1, Holder: "/locks/a/other", Who: "other"}
		var wg sync.WaitGroup
		proceed := make(chan struct{})
		qs := handoff.New(handoff.Config{Context: t.Context(), Closed: context.Canceled, Logger: slog.New(slog.DiscardHandler),
			Go:          func(fn func()) bool { wg.Go(fn); return true },
			GiveUp:      func(context.Context, *recipe.Ticket) { <-proceed },
			Unreachable: func(context.Context, string) error { return nil },
		})
		calls := 0
		lock := &handoff.Lock{Key: handoff.Key{Path: "/locks/a"}, Self: "me", Handoffs: 1,
			Acquire: func(ctx context.Context, try bool, c handoff.Caller) (*recipe.Ticket, error) {
				if calls++; calls == 1 {
					c.Queued(before)
					<-ctx.Done()
					return &recipe.Ticket{}, nil // it held at that moment
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}}
		lockFor := func() (*progress, context.CancelFunc, <-chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			p, end := &progress{}, make(chan error, 1)
			go func() {
				_, err := qs.Lock(ctx, lock, p)
				end <- err
			}()
			synctest.Wait()
			return p, cancel, end
		}
		p, cancel, end := lockFor()
		require.Equal(t, []recipe.Line{before}, p.lines)
		cancel()
		require.ErrorIs(t, <-end, context.Canceled)
		synctest.Wait()

		p, cancel, end = lockFor()
		require.Empty(t, p.lines)
		cancel()
		err := <-end
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorAs(t, err, &recipe.LineError{})
		close(proceed)
		wg.Wait()
		require.Zero(t, qs.Len())
	})
}
