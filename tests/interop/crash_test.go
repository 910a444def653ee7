package interop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

// Whichever kind of client is killed while it holds, the next in line gets the lock when its
// session is over, and then the others, in the order of their arrival: ours after each of the other
// kinds, and each of them after ours.
func TestTheLockOfAKilledHolderPassesToTheNextKind(t *testing.T) {
	needClients(t)
	t.Parallel() // both wait for sessions to end most of the time
	e := ensemble.Shared(t, 3)
	var alive []*process
	for _, kind := range kinds {
		alive = append(alive, launch(t, kind, e, calm))
	}
	for i, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := e.Path(t)
			w := newWitness(t, e, path)
			holder := launch(t, kind, e, calm).open(t, "1", path)
			must(t, holder.acquire("lock"))
			var line []*pending
			for j := range kinds {
				p := alive[(i+1+j)%len(alive)] // each pair of kinds is adjacent once
				line = append(line, p.open(t, fmt.Sprint("behind-", i), path).start("lock"))
				w.awaitLine(t, j+2)
			}
			holder.kill(t)
			killed := time.Now()
			for j, next := range line {
				next.held(t)
				if j == 0 {
					t.Logf("%s has it %v after %s was killed, at a session timeout of %v",
						next.name, time.Since(killed).Round(time.Millisecond), kind, calm)
				}
				shown := w.awaitLine(t, len(line)-j)
				require.True(t, shown[0].Holds)
				require.Equal(t, next.session, shown[0].Session)
				must(t, next.release("lock"))
			}
			require.Empty(t, w.awaitLine(t, 0))
		})
	}
}

// The same for readers and writers of Curator and ours.
func TestTheReadWriteLockOfAKilledHolderPassesToTheOtherKind(t *testing.T) {
	needClients(t)
	t.Parallel() // both wait for sessions to end most of the time
	e := ensemble.Shared(t, 3)
	for i, kind := range both {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := e.Path(t)
			w := newWitness(t, e, path)
			holder := launch(t, kind, e, calm).open(t, "1", path)
			other := launch(t, both[1-i], e, calm)
			must(t, holder.acquire("write"))
			reader := other.open(t, "reader", path).start("read")
			w.awaitLine(t, 2)
			writer := other.open(t, "writer", path).start("write")
			w.awaitLine(t, 3)
			holder.kill(t)
			reader.held(t)
			writer.waits(t)
			must(t, reader.release("read"))
			writer.held(t)
			must(t, writer.release("write"))
			require.Empty(t, w.awaitLine(t, 0))
		})
	}
}
