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

// child names a contender by its number; every kind has ids that sort in another order than the numbers.
func child(kind string, n int32) string {
	return fmt.Sprintf("_c_%08x-%s%010d", uint32(n)*2654435761, kind, n)
}

func lock(n int32) string { return child("lock-", n) }

func TestDecide(t *testing.T) {
	read, write := func(n int32) string { return child("__READ__", n) }, func(n int32) string { return child("__WRIT__", n) }
	kazoo := "0f0e__lock__0000000004"
	for name, c := range map[string]struct {
		children []string
		own      string
		earlier  map[string]bool
		want     recipe.Verdict
		holds    bool
	}{
		"alone":                             {[]string{lock(5)}, lock(5), nil, recipe.Verdict{Present: true, Head: lock(5)}, true},
		"first of three":                    {[]string{lock(7), lock(5), lock(6)}, lock(5), nil, recipe.Verdict{Present: true, Head: lock(5)}, true},
		"second of three":                   {[]string{lock(7), lock(5), lock(6)}, lock(6), nil, recipe.Verdict{Present: true, Watch: lock(5), Head: lock(5), Ahead: 1}, false},
		"third of three":                    {[]string{lock(7), lock(5), lock(6)}, lock(7), nil, recipe.Verdict{Present: true, Watch: lock(6), Head: lock(5), Ahead: 2}, false},
		"with gaps":                         {[]string{lock(100), lock(3), lock(50)}, lock(100), nil, recipe.Verdict{Present: true, Watch: lock(50), Head: lock(3), Ahead: 2}, false},
		"not there":                         {[]string{lock(5), lock(6)}, lock(7), nil, recipe.Verdict{}, false},
		"nobody there":                      {nil, lock(7), nil, recipe.Verdict{}, false},
		"not a contender":                   {[]string{"README", lock(5)}, "README", nil, recipe.Verdict{}, false},
		"foreign names":                     {[]string{"_c_x", "0", "README", "", lock(6), "x-latch-0000000001"}, lock(6), nil, recipe.Verdict{Present: true, Head: lock(6)}, true},
		"Kazoo before us":                   {[]string{kazoo, lock(6)}, lock(6), nil, recipe.Verdict{Present: true, Watch: kazoo, Head: kazoo, Ahead: 1}, false},
		"Kazoo behind us":                   {[]string{kazoo, lock(3)}, lock(3), nil, recipe.Verdict{Present: true, Head: lock(3)}, true},
		"across the wrap":                   {[]string{lock(math.MinInt32), lock(math.MaxInt32)}, lock(math.MinInt32), nil, recipe.Verdict{Present: true, Watch: lock(math.MaxInt32), Head: lock(math.MaxInt32), Ahead: 1}, false},
		"first at the wrap":                 {[]string{lock(math.MinInt32), lock(math.MaxInt32)}, lock(math.MaxInt32), nil, recipe.Verdict{Present: true, Head: lock(math.MaxInt32)}, true},
		"negative and zero":                 {[]string{lock(0), lock(-1), lock(-2)}, lock(0), nil, recipe.Verdict{Present: true, Watch: lock(-1), Head: lock(-2), Ahead: 2}, false},
		"a tie, not known":                  {[]string{lock(5), "a-lock-0000000005"}, lock(5), nil, recipe.Verdict{Present: true, Head: lock(5), Ties: []string{"a-lock-0000000005"}}, false},
		"a tie, later":                      {[]string{lock(5), "a-lock-0000000005"}, lock(5), map[string]bool{"a-lock-0000000005": false}, recipe.Verdict{Present: true, Head: lock(5)}, true},
		"a tie, earlier":                    {[]string{lock(5), "a-lock-0000000005"}, lock(5), map[string]bool{"a-lock-0000000005": true}, recipe.Verdict{Present: true, Watch: "a-lock-0000000005", Head: "a-lock-0000000005", Ahead: 1}, false},
		"a mutex's contender among readers": {[]string{lock(6), read(5)}, lock(6), nil, recipe.Verdict{Present: true, Head: lock(6), Foreign: read(5)}, true},
		"foreign, and not there":            {[]string{read(5)}, lock(6), nil, recipe.Verdict{Foreign: read(5)}, false},
		"a reader behind readers":           {[]string{read(5), read(6)}, read(6), nil, recipe.Verdict{Present: true, Head: read(6)}, true},
		"a reader behind a writer":          {[]string{write(4), read(5), read(6)}, read(6), nil, recipe.Verdict{Present: true, Watch: write(4), Head: write(4), Ahead: 1}, false},
		"a reader before a writer":          {[]string{read(5), write(6)}, read(5), nil, recipe.Verdict{Present: true, Head: read(5)}, true},
		"a writer behind readers":           {[]string{read(4), read(5), write(6)}, write(6), nil, recipe.Verdict{Present: true, Watch: read(5), Head: read(4), Ahead: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := recipe.Decide(c.children, c.own, c.earlier)
			require.Equal(t, c.want, got)
			require.Equal(t, c.holds, got.Holds())
			slices.Reverse(c.children)
			require.Equal(t, c.want, recipe.Decide(c.children, c.own, c.earlier), "the list is in no order")
		})
	}
}

// TestDecideAgreesWithTheOrderOfCreation makes contenders one after the other, as a server with any counter does, lets
// some of them go, and asks each one that is left; it knows the order without a look at the numbers.
func TestDecideAgreesWithTheOrderOfCreation(t *testing.T) {
	starts := []int32{0, 1, -1, math.MaxInt32, math.MaxInt32 - 10, math.MinInt32, -20, 999_999_990, -1_000_000_010}
	kinds := []struct {
		marks  []string
		reader func(mark string) bool
	}{
		{[]string{"lock-", "x__lock__"}, func(string) bool { return false }},
		{[]string{"__READ__", "__WRIT__", "x__rlock__"}, func(mark string) bool { return mark != "__WRIT__" }},
	}
	for run := range 3000 {
		rng := rand.New(rand.NewPCG(uint64(run), 1))
		number := starts[rng.IntN(len(starts))]
		if rng.IntN(2) == 0 {
			number = int32(rng.Uint32())
		}
		kind := kinds[rng.IntN(len(kinds))]
		type contender struct {
			name   string
			reader bool
		}
		var line []contender
		for range 1 + rng.IntN(30) {
			mark := kind.marks[rng.IntN(len(kind.marks))]
			if rng.IntN(3) > 0 { // the others have gone
				line = append(line, contender{child(mark, number), kind.reader(mark)})
			}
			number += 1 + rng.Int32N(1_000_000)
		}
		var children []string
		for _, c := range line {
			children = append(children, c.name)
		}
		require.Equal(t, children, recipe.Sort(shuffled(rng, children, "README", "_c_x")))
		for i, own := range line {
			var inTheWay []string
			for _, c := range line[:i] {
				if !own.reader || !c.reader {
					inTheWay = append(inTheWay, c.name)
				}
			}
			want := recipe.Verdict{Present: true, Head: own.name, Ahead: len(inTheWay)}
			if n := len(inTheWay); n > 0 {
				want.Head, want.Watch = inTheWay[0], inTheWay[n-1]
			}
			list := shuffled(rng, children, "README", "0", "_c_x")
			require.Equal(t, want, recipe.Decide(list, own.name, nil), "run %d: %s in %v", run, own.name, children)
		}
	}
}

func shuffled(rng *rand.Rand, names []string, more ...string) []string {
	all := append(slices.Clone(names), more...)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func TestExactlyOneOfAMutexsContendersHolds(t *testing.T) {
	for run := range 500 {
		rng := rand.New(rand.NewPCG(uint64(run), 2))
		number := int32(rng.Uint32())
		var children []string
		for range 1 + rng.IntN(20) {
			children = append(children, lock(number))
			number += 1 + rng.Int32N(1000)
		}
		children = shuffled(rng, children)
		holders, watched := 0, map[string]int{}
		for _, own := range children {
			v := recipe.Decide(children, own, nil)
			if v.Holds() {
				holders++
			} else {
				watched[v.Watch]++
			}
		}
		require.Equal(t, 1, holders)
		require.Len(t, watched, len(children)-1)
		for name, n := range watched {
			require.Equal(t, 1, n, "one release wakes one: %s", name)
		}
	}
}

func TestSerialNumbers(t *testing.T) {
	for _, c := range []struct{ a, b int32 }{
		{0, 1}, {-1, 0}, {math.MaxInt32, math.MinInt32}, {math.MaxInt32 - 5, math.MinInt32 + 5}, {-5, math.MaxInt32 - 5},
	} {
		require.True(t, recipe.Before(c.a, c.b), "%d before %d", c.a, c.b)
		require.False(t, recipe.Before(c.b, c.a), "%d before %d", c.b, c.a)
		require.False(t, recipe.Before(c.a, c.a))
	}
}

func TestKindsThatShareADirectory(t *testing.T) {
	all := []recipe.Kind{recipe.Lock, recipe.Read, recipe.Write, recipe.Permits}
	for _, a := range all {
		for _, b := range all {
			rw := (a == recipe.Read || a == recipe.Write) && (b == recipe.Read || b == recipe.Write)
			require.Equal(t, a == b || rw, a.Shares(b), "%v, %v", a, b)
			if rw {
				require.Equal(t, a == recipe.Write || b == recipe.Write, a.Blocks(b), "%v, %v", a, b)
			}
		}
	}
	require.Equal(t, "mutex, read lock, write lock, semaphore, nothing", fmt.Sprintf("%v, %v, %v, %v, %v",
		recipe.Lock, recipe.Read, recipe.Write, recipe.Permits, recipe.None))
}
