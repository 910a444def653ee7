package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
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
	return queue.Queue{Dir: dir, Kind: recipe.Lock, ACL: session.WorldACL(), Data: []byte("me"),
		Caller:   onRetry(func() {}),
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

// A neighbour must not be able to block a lock forever with one create: a contender of another
// kind is a conflict for later ones only while a session owns it.
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

func TestTheEndOfAWaitIsFoundInItsError(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("own reason"))
	err := fmt.Errorf("lock: %w",
		failure.Ended(ctx, nil, queue.LineError{Line: queue.Line{Ahead: 2, Owner: "host:7"}}))
	require.ErrorIs(t, err, context.Canceled)
	var line queue.LineError
	require.ErrorAs(t, err, &line)
	require.Equal(t, 2, line.Ahead)
	require.EqualError(t, err,
		"lock: context canceled (own reason) while waiting 3rd in line behind host:7")
}

// A neighbour may give its znodes any names, also names of 1 MB.
func TestNamesThatOthersGaveAreCutAndEscapedInErrors(t *testing.T) {
	name := "\u202eevil\u2028\u009b" + strings.Repeat("x", 1<<20)
	for _, msg := range []string{
		queue.Line{Ahead: 1, Node: "/locks/a/" + name}.String(),
		queue.Line{Ahead: 1, Owner: name}.String(),
		queue.LineError{Line: queue.Line{Ahead: 3, Node: "/locks/a/" + name}}.Error(),
		(&session.OpError{Op: "delete", Path: "/locks/a/" + name,
			Err: session.ErrConnection}).Error(),
	} {
		require.Contains(t, msg, `\u202eevil\u2028\u009bxxx`)
		require.Less(t, len(msg), 400)
	}
}

// A longer wait reads who holds, for messages. A waiter whose turn comes holds before that is
// answered.
func TestAWaiterWhoseTurnComesWaitsForNoneOfItsReads(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		all := line(t, srv, 3, mutex)
		var reads []*zktest.Injection
		for _, next := range all[1:] {
			reads = append(reads, srv.Inject(fault.Hold().Op(fault.OpExists).Session(next.s.ID())))
		}
		time.Sleep(2 * queue.WatchAfter)
		synctest.Wait()
		for i, next := range all[1:] {
			require.Positive(t, reads[i].Hits())
			at := time.Now()
			require.NoError(t, all[i].Leave(within(t, soon)))
			require.NoError(t, <-next.done)
			require.Equal(t, at, time.Now())
			reads[i].Remove()
		}
		require.NoError(t, all[2].Leave(within(t, soon)))
		requireLeft(t, srv, all)
	})
}

// Scenario 78: whatever wakes a waiter is lost. It looks again after a session timeout, then at
// doubling pauses, a minute at most, and while nothing has changed in the directory it costs one
// short request each time.
func TestScenario78_AWaiterThatIsNotWokenLooksAgain(t *testing.T) {
	shared := func(int) queue.Queue {
		q := aMutex()
		q.Kind, q.Permits, q.Size = recipe.Permits, 1, queue.NewSize(1)
		return q
	}
	for name, kind := range map[string]func(int) queue.Queue{"mutex": mutex,
		"writer":    func(int) queue.Queue { return writer() },
		"semaphore": shared} {
		for _, waited := range []time.Duration{0, time.Hour / 2} {
			t.Run(fmt.Sprint(name, " ", waited), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					all := line(t, srv, 2, kind)
					timeout := all[1].s.Timeout()
					before := srv.Requests()
					time.Sleep(waited)
					after := srv.Requests()
					if name != "semaphore" {
						require.Equal(t, before[fault.OpGetChildren2], after[fault.OpGetChildren2],
							"lists, though nothing has changed")
						require.InDelta(t, waited.Minutes(),
							after[fault.OpExists]-before[fault.OpExists], 5, "looks")
					}
					srv.Inject(fault.DropReply().Op(fault.OpNotify))
					began := time.Now()
					require.NoError(t, all[0].Leave(within(t, soon)))
					require.NoError(t, <-all[1].done)
					require.LessOrEqual(t, time.Since(began),
						max(queue.WatchAfter+timeout, min(waited, time.Minute)))
				})
			})
		}
	}
}

// warned is a caller whose log's handler does not return from a warning.
type warned struct{ onRetry }

func (warned) Warn(string, ...any) bool { return false }

// The handler may fail just as the turn comes in one queue. The wait in the next one has not heard
// of that.
func TestACallerThatEndsTheWaitInOneQueueDoesNotWaitInTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		other, s := open(t, srv), open(t, srv)
		first := enter(t, mutexIn("/a"), other)
		require.NoError(t, first.Wait(within(t, soon)))
		require.NoError(t, enter(t, mutexIn("/b"), other).Wait(within(t, soon)))
		a, b := mutexIn("/a"), mutexIn("/b")
		a.Caller, b.Caller = warned{}, warned{}
		both, err := queue.Enter(within(t, soon), s, a, b)
		require.NoError(t, err)
		done := wait(both, t.Context())
		pending(t, done)

		// So that a poll finds the change, and warns.
		srv.Inject(fault.DropReply().Op(fault.OpNotify))
		require.NoError(t, first.Leave(within(t, soon)))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, done, 1)
		require.ErrorContains(t, <-done, "the caller waits no more")
		require.NoError(t, both.Leave(within(t, soon)))
	})
}
