//go:build !race && go1.26

package simulation_test

import (
	"runtime"
	"testing"
	"testing/cryptotest"

	"github.com/stretchr/testify/require"
)

// A seed that failed should fail again, on one processor and without the race detector, which changes the order of
// goroutines on purpose. A client's requests, too, have to be the same: an order of theirs that chance decides, as that of a
// map does, shows later in the history, if at all.
//
// The scheduler decides in which order goroutines run that one event wakes. So each client here has one operation at a time;
// and since a server lists contenders by their names, the ids in these are drawn from the seed. It still decides in which order
// the messages of several clients arrive that a fault has held back until one instant. From there on a seed has one of two
// histories, mostly. Also, a run during which the operating system stopped the process may differ, since Go's scheduler
// reads the clock. So each seed is run until a history has come twice, at most three times.
func TestARepeatedSeedHasTheSameHistory(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer collectRarely()()
	const seeds, runs = 60, 3
	repeated := 0
	for seed := range uint64(seeds) {
		seen := map[uint64]bool{}
		for range runs {
			before := len(seen)
			t.Run("", func(t *testing.T) {
				cryptotest.SetGlobalRandom(t, seed)
				w := simulate(t, 1+seed, func(w *world) { w.single, w.busy = true, false })
				seen[mix(digest(w), w.sent)] = true
			})
			collect()
			if len(seen) == before {
				repeated++
				break
			}
		}
	}
	t.Logf("%d of %d seeds had the same history twice", repeated, seeds)
	require.GreaterOrEqual(t, repeated, seeds-3)
}
