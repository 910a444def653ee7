package recipe_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
)

// rwName is the name of a reader or writer with that number; id tells those of one number apart.
func rwName(kind byte, number int32, id int) string {
	mark := map[byte]string{'R': "__READ__", 'W': "__WRIT__", 'M': "lock-", 'S': "lease-1-"}[kind]
	return fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-%s%010d", id, mark, number)
}

// Which contender holds and which one it watches, by table: a line of readers (R) and writers (W) in order of arrival, and from the
// point of view of the contender at own the one it watches (-1: it holds), the first in its way, and how many are.
func TestWhoStandsInAReadersAndAWritersWay(t *testing.T) {
	for _, k := range []struct {
		line             string
		own              int
		watch, head, num int
	}{
		{"R", 0, -1, 0, 0}, {"W", 0, -1, 0, 0},
		{"RR", 1, -1, 1, 0}, {"RW", 1, 0, 0, 1}, {"WR", 1, 0, 0, 1}, {"WW", 1, 0, 0, 1},
		{"RRRR", 3, -1, 3, 0}, {"RRRW", 3, 2, 0, 3}, {"WRRW", 3, 2, 0, 3},
		{"WRRR", 3, 0, 0, 1}, {"WRWR", 3, 2, 0, 2}, {"WWRR", 3, 1, 0, 2}, {"RWRR", 3, 1, 1, 1},
		{"RWRW", 0, -1, 0, 0}, {"RWRW", 2, 1, 1, 1}, {"RWRW", 1, 0, 0, 1}, {"WRRRW", 0, -1, 0, 0},
	} {
		for _, from := range []int32{0, 999999998, 3<<29 - 4} {
			names := make([]string, len(k.line))
			for i := range k.line {
				names[i] = rwName(k.line[i], from+int32(i), len(k.line)-i)
			}
			own := names[k.own]
			shuffled := slices.Clone(names)
			rand.Shuffle(len(names), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			shuffled = append(shuffled, "README", "__READ__", "x__WRIT__12")
			v := recipe.Decide(recipe.Listing{Names: shuffled}, own, 0, nil)
			want := recipe.Verdict{Present: true, First: names[k.head], Ahead: k.num, Holds: k.watch < 0}
			if k.watch >= 0 {
				want.Watch = names[k.watch]
			}
			require.Equal(t, want, v, "contender %d of %s, from %d", k.own, k.line, from)
			require.Equal(t, k.watch < 0, v.Holds)
		}
	}
}

// Those of another kind of lock are reported, and never decide who holds.
func TestContendersOfAnotherKindAreForeign(t *testing.T) {
	for _, k := range []struct{ own, other byte }{
		{'R', 'M'}, {'W', 'M'}, {'M', 'R'}, {'M', 'W'}, {'R', 'S'}, {'W', 'S'}, {'M', 'S'}, {'S', 'R'}, {'S', 'W'}, {'S', 'M'},
	} {
		own, other := rwName(k.own, 2, 0), rwName(k.other, 1, 1)
		v := recipe.Decide(recipe.Listing{Names: []string{other, own}}, own, 1, nil)
		require.Equal(t, []string{other}, v.OtherKinds, "%c and %c", k.own, k.other)
		require.Zero(t, v.Ahead)
		require.Equal(t, recipe.Verdict{OtherKinds: []string{other}}, recipe.Decide(recipe.Listing{Names: []string{other}}, own, 0, nil), "when its own is not there")
	}
	for _, k := range []struct{ own, other byte }{{'R', 'W'}, {'W', 'R'}, {'R', 'R'}, {'W', 'W'}} {
		require.Empty(t, recipe.Decide(recipe.Listing{Names: []string{rwName(k.other, 1, 1), rwName(k.own, 2, 0)}}, rwName(k.own, 2, 0), 0, nil).OtherKinds)
	}
}

// Equal numbers, as Curator's read under its own write has: the writer's is not in a reader's way when that came first,
// and nobody else's business is changed by there being two.
func TestEqualNumbersOfAReaderAndAWriterAreToldApartByTheirAge(t *testing.T) {
	write, read := rwName('W', 5, 1), rwName('R', 5, 2)
	later, writer := rwName('R', 6, 3), rwName('W', 7, 4)
	first := map[string]int64{write: 1, read: 2}
	in := func(names ...string) recipe.Listing { return recipe.Listing{Names: names} }
	line := in(read, write, later, writer)
	require.Equal(t, []string{write, read}, recipe.Decide(line, read, 0, nil).Unknown)
	require.True(t, recipe.Decide(line, write, 0, first).Holds)
	require.False(t, recipe.Decide(line, read, 0, first).Holds)
	require.Equal(t, write, recipe.Decide(line, later, 0, nil).Watch)
	require.Equal(t, 1, recipe.Decide(line, later, 0, nil).Ahead)
	require.Equal(t, later, recipe.Decide(line, writer, 0, nil).Watch)
	require.True(t, recipe.Decide(in(read, later, writer), later, 0, nil).Holds, "when the writer's has gone")
	require.Equal(t, read, recipe.Decide(in(read, writer), writer, 0, nil).Watch)
}

// Against a naive model, on random lines: who holds are the readers before the first writer, or the first writer; and
// to follow what each waits for always leads to a holder, so that nobody waits for ever.
func TestDecideAgreesWithANaiveModelOfReadersAndWriters(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 1000 {
		n := 1 + rnd.IntN(12)
		number := rnd.Int32N(3<<29 - 100)
		var line []string // in order of arrival
		var kinds []byte
		for i := range n {
			kind := "RRW"[rnd.IntN(3)]
			number += 1 + int32(rnd.IntN(3))
			line, kinds = append(line, rwName(kind, number, rnd.IntN(1<<30)*16+i)), append(kinds, kind)
		}
		list := slices.Clone(line)
		rnd.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
		for i, own := range line {
			holds, watch, ahead := true, "", 0
			for j := range i {
				if kinds[i] == 'W' || kinds[j] == 'W' {
					holds, watch, ahead = false, line[j], ahead+1
				}
			}
			v := recipe.Decide(recipe.Listing{Names: list}, own, 0, nil)
			require.Equal(t, holds, v.Holds, "seed %d: %s in %v", seed, own, line)
			require.Equal(t, watch, v.Watch, "seed %d: %s in %v", seed, own, line)
			require.Equal(t, ahead, v.Ahead, "seed %d: %s in %v", seed, own, line)
			steps := 0
			for at := own; !recipe.Decide(recipe.Listing{Names: list}, at, 0, nil).Holds; at = recipe.Decide(recipe.Listing{Names: list}, at, 0, nil).Watch {
				steps++
				require.LessOrEqual(t, steps, i, "seed %d: a circle of waiting", seed)
			}
		}
	}
}

// The kinds in words, for errors and for those who look at the line.
func TestKindsHaveNames(t *testing.T) {
	for kind, name := range map[recipe.Kind]string{
		recipe.None: "nothing", recipe.Lock: "mutex", recipe.Read: "read lock", recipe.Write: "write lock",
		recipe.Permits: "semaphore", recipe.Kind(99): "nothing",
	} {
		require.Equal(t, name, kind.String())
	}
}
