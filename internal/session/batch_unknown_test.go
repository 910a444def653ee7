package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// A batch of a read and a write: both are sent, the write is carried out, and ctx or the session ends before the replies.
func TestAWriteBehindAReadInABatchThatIsGivenUpHasAnUnknownOutcome(t *testing.T) {
	for name, closing := range map[string]bool{"ctx": false, "session": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				srv.Inject(fault.FreezeReplies())
				b := s.Batch()
				b.Exists("/")
				made := b.Create("/x", nil, session.Persistent, session.WorldACL())
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if closing {
					go func() { time.Sleep(100 * time.Millisecond); s.Close() }()
				}
				require.Error(t, b.Do(ctx))
				synctest.Wait()
				_, exists := srv.Node("/x")
				require.True(t, exists)
				require.ErrorIs(t, made.Err, session.ErrUnknownOutcome, "it was carried out")
			})
		})
	}
}

// A long batch of a write and reads: its connection breaks, and fails the requests one after the other. ctx ends when the write
// and as many reads as are waited for together have failed, and those behind have not.
func TestAWriteThatFailedWithItsConnectionHasAnUnknownOutcomeAlsoIfCtxEndsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := session.NewRig()
		defer r.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		b := r.Batch()
		made := b.Create("/x", nil, session.Persistent, session.WorldACL())
		for range 2*session.Burst - 1 {
			b.Exists("/")
		}
		done := make(chan error)
		go func() { done <- b.Do(ctx) }()
		synctest.Wait()
		require.NoError(t, r.Send())
		r.BreakBehind(session.Burst, errors.New("broken"))
		synctest.Wait()
		cancel()
		require.Error(t, <-done)
		require.ErrorIs(t, made.Err, session.ErrUnknownOutcome, "it was sent")
		require.NotErrorIs(t, made.Err, session.ErrNotSent)
	})
}
