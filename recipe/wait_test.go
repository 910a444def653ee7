package recipe_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
)

// The reads of a longer wait are for messages, and for predecessors that may not be read. A waiter whose turn comes holds before
// they are answered.
func TestAWaiterWhoseTurnComesWaitsForNoneOfItsReads(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpExists, zktest.OpGetChildren2} { // the holder; whether the predecessor may be read
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			all := line(t, srv, 3, mutex)
			var reads []*zktest.Injection
			for _, next := range all[1:] {
				reads = append(reads, srv.Inject(zktest.Hold().Op(op).Session(next.s.ID())))
			}
			time.Sleep(2 * recipe.WatchAfter)
			synctest.Wait()
			require.Positive(t, reads[1].Hits(), "the first has read its predecessor when it has read who holds")
			for i, next := range all[1:] {
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
}
