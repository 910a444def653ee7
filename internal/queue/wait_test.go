package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// A longer wait reads who holds, for messages. A waiter whose turn comes holds before that is answered.
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

// Scenario 78: whatever wakes a waiter is lost. It looks again after a session timeout, then at doubling pauses, a minute at
// most, and while nothing has changed in the directory it costs one short request each time.
func TestScenario78_AWaiterThatIsNotWokenLooksAgain(t *testing.T) {
	shared := func(int) queue.Queue {
		q := aMutex()
		q.Kind, q.Permits, q.Size = recipe.Permits, 1, queue.NewSize(1)
		return q
	}
	for name, kind := range map[string]func(int) queue.Queue{"mutex": mutex, "writer": func(int) queue.Queue { return writer() },
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
						require.Equal(t, before[fault.OpGetChildren2], after[fault.OpGetChildren2], "lists, though nothing has changed")
						require.InDelta(t, waited.Minutes(), after[fault.OpExists]-before[fault.OpExists], 5, "looks")
					}
					srv.Inject(fault.DropReply().Op(fault.OpNotify))
					began := time.Now()
					require.NoError(t, all[0].Leave(within(t, soon)))
					require.NoError(t, <-all[1].done)
					require.LessOrEqual(t, time.Since(began), max(queue.WatchAfter+timeout, min(waited, time.Minute)))
				})
			})
		}
	}
}
