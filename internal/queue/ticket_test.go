package queue_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

const soon = 20 * time.Second

var (
	within = locktest.Within
	bubble = locktest.BubbleAlone
)

func open(t *testing.T, srv *zktest.Server, auth ...session.Auth) *session.Session {
	t.Helper()
	s, err := session.Open(within(t, soon), srv.Addr(), session.Config{Dial: srv.Dial, Auth: auth})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func writer() queue.Queue {
	q := aMutex()
	q.Kind = recipe.Write
	return q
}

func aMutex() queue.Queue { return mutexIn("/l") }

// mutexIn is a mutex's queue, of a caller who hears nothing of its progress.
func mutexIn(dir string) queue.Queue {
	return queue.Queue{Dir: dir, Kind: recipe.Lock, ACL: session.WorldACL(), Data: []byte("me"), Caller: onRetry(func() {}),
		Describe: func(b []byte) string { return string(b) }, Log: slog.New(slog.DiscardHandler)}
}

// permitsOf is the queue of a semaphore.
func permitsOf(size *queue.Size, permits int) queue.Queue {
	q := mutexIn("/s")
	q.Kind, q.Size, q.Permits = recipe.Permits, size, permits
	return q
}

func enter(t *testing.T, q queue.Queue, s *session.Session) *queue.Ticket {
	t.Helper()
	ticket, err := queue.Enter(within(t, soon), s, q)
	require.NoError(t, err)
	return ticket
}

// wait calls Wait in a new goroutine.
func wait(ticket *queue.Ticket, ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- ticket.Wait(ctx) }()
	return done
}

func pending(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		require.FailNow(t, "does not wait", "%v", err)
	default:
	}
}

// A neighbour must not be able to block a lock for ever with one create: a contender of another kind is a conflict for later ones
// only while a session owns it.
func TestALeftoverOfAnotherKindIsIgnored(t *testing.T) {
	for _, name := range []string{"_c_x-__READ__0000000000", "_c_x-lease-1-0000000000"} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			require.NoError(t, srv.Create("/l", nil))
			require.NoError(t, srv.Create("/l/"+name, nil))
			first := enter(t, aMutex(), s)
			require.NoError(t, first.Wait(within(t, soon)))
			require.NoError(t, first.Leave(within(t, soon)))
			tried, err := queue.Try(within(t, soon), s, aMutex())
			require.NoError(t, err)
			require.NoError(t, tried.Leave(within(t, soon)))
			require.Len(t, srv.Children("/l"), 1)
		})
	}
}
