package recipe_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
)

// semName is the name of a contender for n permits.
func semName(n int, number int32, id int) string {
	return fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-lease-%d-%010d", id, n, number)
}

// A contender that is not in the list neither holds nor waits; contenders of other kinds are
// reported.
func TestPermitsOfOneWhoIsNotInLine(t *testing.T) {
	own := semName(1, 5, 1)
	others := recipe.Listing{Names: []string{semName(1, 4, 2), semName(1, 6, 3)}}
	require.Equal(t, recipe.Verdict{}, recipe.Decide(recipe.Listing{}, own, 3, nil))
	require.Equal(t, recipe.Verdict{}, recipe.Decide(others, own, 3, nil))
}

// A contender behind ours that has gone since the list need not be told that we hold.
func TestAContenderThatHasGoneDoesNotFollow(t *testing.T) {
	own, other := semName(1, math.MaxInt32, 1), semName(1, math.MaxInt32, 2)
	list := recipe.Listing{Names: []string{own, other}}
	for czxid, follows := range map[int64]bool{8: true, 0: false} {
		v := recipe.Decide(list, own, 1, map[string]int64{own: 7, other: czxid})
		want := recipe.Verdict{Present: true, Holds: true, First: own, Followed: follows}
		require.Equal(t, want, v, "czxid %d", czxid)
	}
}

// Where an int has 32 bits, a sum that overflowed would let two hold all permits.
var _ int32 = recipe.MaxPermits + 1 + recipe.MaxPermits

// On random lines and sizes, compared with a naive model. A contender holds when its permits and
// those of all before it are no more than the size; the permits in use are never more than the
// size; the holders are the first in line; and exactly one waiter, the first, is the head.
func TestDecidePermitsAgreesWithANaiveModel(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 2))
	for range 1000 {
		size, number := 1+rnd.IntN(12), rnd.Int32N(3<<29-100)
		var line []string
		var wants []int
		for i := range 1 + rnd.IntN(12) {
			n := 1 + rnd.IntN(5)
			number += 1 + int32(rnd.IntN(3))
			line, wants = append(line, semName(n, number, rnd.IntN(1<<30)*16+i)), append(wants, n)
		}
		list := slices.Clone(line)
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		sum, out, heads, stopped := 0, 0, 0, false
		for i, own := range line {
			v := recipe.Decide(recipe.Listing{Names: list}, own, size, nil)
			sum += wants[i]
			says := fmt.Sprintf("seed %d: contender %d of %v for %d", seed, i, wants, size)
			require.Equal(t, sum <= size, v.Holds, says)
			if v.Holds {
				require.False(t, stopped, says)
				out += wants[i]
				continue
			}
			stopped = true
			require.Positive(t, v.Ahead, says)
			if v.Ahead == 1 {
				heads++
			}
		}
		require.LessOrEqual(t, out, size, "seed %d", seed)
		require.LessOrEqual(t, heads, 1, "seed %d: %v for %d", seed, wants, size)
		require.Equal(t, stopped, heads == 1, "seed %d: %v for %d", seed, wants, size)
	}
}
