package locktest

import (
	"fmt"
	"strings"
	"testing"
)

// EachSeed runs fn for so many seeds, each in a subtest, until one fails.
func EachSeed(t *testing.T, seeds uint64, fn func(t *testing.T, seed uint64)) {
	t.Helper()
	for seed := range seeds {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			SayHowToRepeat(t, "-run '^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$'")
			fn(t, seed)
		}) {
			return
		}
	}
}

// SayHowToRepeat has a failure of a random test say how its seed is run again, and what that does
// not repeat.
func SayHowToRepeat(t *testing.T, how string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s draws the same random numbers again. The order in which goroutines run that one event wakes is not the seed's: repeat it, with -cpu 1 and -count", how)
		}
	})
}
