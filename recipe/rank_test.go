package recipe_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
)

// Whatever number a candidate has, its next name says that it has stepped aside, and keeps its
// rank.
func TestACandidateThatHasSteppedAsideDoesSoOnceForEachSign(t *testing.T) {
	numbers := []int32{
		0, 5, 3<<29 - 1, 3 << 29, math.MaxInt32, math.MinInt32, -100, -1,
	}
	for _, number := range numbers {
		first := recipe.Name{Kind: recipe.Lock, Number: number, Rank: 7}
		require.True(t, first.MayStepAside(10, 0), number)

		again := recipe.Name{Kind: recipe.Lock, Rank: 7, Since: first.Arrival()}
		read, ok := recipe.Parse("_c_" + uuid + again.Label() + "0000000012")
		require.True(t, ok)
		require.Equal(t, 7, read.Rank, number)
		require.Equal(t, first.Arrival(), read.Arrival(), number)
		require.False(t, read.MayStepAside(10, 9), number)
		require.True(t, read.MayStepAside(10, 11), "%d: somebody has led since", number)
	}
}
