//go:build !race

package simulation_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// The race detector mixes up the order of goroutines on purpose; without it, and on one processor, a seed that failed
// is to fail again. A run in which the operating system kept the process waiting may differ, since the scheduler looks at
// the clock: so a seed is run until it has repeated itself, at most six times.
func TestARepeatedSeedHasTheSameHistory(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer collectRarely()()
	const seeds, runs = 20, 6
	repeated := 0
	for seed := range uint64(seeds) {
		seen := map[uint64]bool{}
		for range runs {
			before := len(seen)
			t.Run("", func(t *testing.T) { seen[digest(simulate(t, 1+seed))] = true })
			collect()
			if len(seen) == before {
				repeated++
				break
			}
		}
	}
	t.Logf("%d of %d seeds had the same history twice", repeated, seeds)
	require.Greater(t, repeated, 3*seeds/4)
}
