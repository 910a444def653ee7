//go:build !race

package simulation_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A seed that failed should fail again, on one processor and without the race detector, which changes the order of
// goroutines on purpose. A run during which the operating system stopped the process may differ, since Go's scheduler reads
// the clock. So each seed is run until a history has come twice, at most six times.
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
