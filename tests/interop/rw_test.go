package interop_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

// both are the kinds that share a read/write lock.
var both = []string{ours, curator}

// pair returns two contenders of each of both kinds on one read/write lock.
func pair(t *testing.T, e *ensemble.Ensemble, path string) (our, their [2]*contender) {
	t.Helper()
	for i, kind := range both {
		p := launch(t, kind, e, calm)
		for j := range 2 {
			c := p.open(t, fmt.Sprint(j+1), path)
			if i == 0 {
				our[j] = c
			} else {
				their[j] = c
			}
		}
	}
	return our, their
}

// Readers and writers of both kinds, at once: a writer is always alone.
func TestReadersAndWritersOfCuratorAndOursExcludeEachOther(t *testing.T) {
	needClients(t)
	rounds := 20 // of three reads and a write, for each of eight contenders
	if long() {
		rounds *= 16
	}
	e := ensemble.Shared(t, 3)
	path := e.Path(t)
	w := newWitness(t, e, path)
	var all []*contender
	for _, kind := range both {
		p := launch(t, kind, e, calm)
		for i := range 4 {
			all = append(all, p.open(t, fmt.Sprint(i+1), path))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*bound)
	defer cancel()
	var together sync.WaitGroup
	for i, c := range all {
		together.Go(func() {
			for n := range 4 * rounds {
				mode := "read"
				if (n+i)%4 == 0 {
					mode = "write"
				}
				err := c.acquire(mode)
				if err == nil {
					w.enter(c, mode)
					err = w.checkShared(ctx, c, mode)
					w.leave(c)
				}
				if err == nil {
					err = c.release(mode)
				}
				if err != nil {
					t.Errorf("round %d: %v", n+1, err)
					return
				}
			}
		})
	}
	together.Wait()
	require.NoError(t, w.err())
	require.Equal(t, map[string]int{ours: 16 * rounds, curator: 16 * rounds}, w.entries)
	t.Logf("%s; readers of both kinds were inside together %d times", w.shares(), w.mixed)
	require.Empty(t, w.awaitLine(t, 0))
}

// Readers of both kinds read at once; a writer of either waits for all of them, and readers that
// come later wait for it.
func TestReadersOfBothKindsReadTogetherAndWritersOfBothWait(t *testing.T) {
	needClients(t)
	e := ensemble.Shared(t, 3)
	for _, writer := range both {
		t.Run("a writer of "+writer, func(t *testing.T) {
			path := e.Path(t)
			w := newWitness(t, e, path)
			our, their := pair(t, e, path)
			wr, late := our[1], their[1]
			if writer == curator {
				wr, late = late, wr
			}
			must(t, our[0].acquire("read"))
			must(t, their[0].acquire("read")) // it does not wait
			for i, k := range w.awaitLine(t, 2) {
				require.True(t, k.Holds)
				require.Equal(t, "read", string(k.Kind))
				require.Equal(t, []*contender{our[0], their[0]}[i].session, k.Session)
			}

			write := wr.start("write")
			w.awaitLine(t, 3)
			read := late.start("read")
			line := w.awaitLine(t, 4)
			require.Equal(t, "write", string(line[2].Kind))
			require.Equal(t, wr.session, line[2].Session)
			require.False(t, line[2].Holds)
			require.False(t, line[3].Holds, "a reader behind a waiting writer")

			must(t, our[0].release("read"))
			require.False(t, w.awaitLine(t, 3)[1].Holds)
			write.waits(t)
			must(t, their[0].release("read"))
			write.held(t)
			read.waits(t)
			require.False(t, w.awaitLine(t, 2)[1].Holds)
			must(t, wr.release("write"))
			read.held(t)
			must(t, late.release("read"))
			require.Empty(t, w.awaitLine(t, 0))
		})
	}
}

// A writer of Curator's that reads under its own lock and then releases the write lock lets our
// readers in, and a writer of ours when it has released the read lock.
//
// Up to 5.4.0 Curator gives that reader a new place, at the end of the line: a writer before that
// place, Curator's own too, does not wait for it (CURATOR-621). Since 5.5.0 the reader keeps the
// writer's place. Our writer comes last here, so that both are right.
func TestCuratorsDowngradeLetsOurReadersInAndKeepsALaterWriterOut(t *testing.T) {
	needClients(t)
	e := ensemble.Shared(t, 3)
	path := e.Path(t)
	w := newWitness(t, e, path)
	our, their := pair(t, e, path)
	must(t, their[0].acquire("write"))
	read := our[0].start("read")
	w.awaitLine(t, 2)
	must(t, their[0].acquire("read")) // does not wait for itself
	write := our[1].start("write")
	w.awaitLine(t, 4)
	read.waits(t)
	write.waits(t)

	must(t, their[0].release("write"))
	read.held(t)
	for _, k := range w.awaitLine(t, 3) {
		require.Equal(t, k.Kind == "read", k.Holds, "%+v", k)
	}
	must(t, read.release("read"))
	require.False(t, w.awaitLine(t, 2)[1].Holds)
	write.waits(t)
	must(t, their[0].release("read"))
	write.held(t)
	must(t, write.release("write"))
	require.Empty(t, w.awaitLine(t, 0))
}
