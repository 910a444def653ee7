package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// A batch of a read and a write: both are sent, the write is carried out, and ctx or the session ends before the replies.
func TestAWriteBehindAReadInABatchThatIsGivenUpHasAnUnknownOutcome(t *testing.T) {
	for name, closing := range map[string]bool{"ctx": false, "session": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				srv.Inject(zktest.FreezeReplies())
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
