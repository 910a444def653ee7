package recipe_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
)

// child returns a contender's name, by its number. The ids sort in another order than the numbers, with every kind.
func child(kind string, n int32) string {
	return fmt.Sprintf("_c_%08x-%s%010d", uint32(n)*2654435761, kind, n)
}

func lock(n int32) string { return child("lock-", n) }

// decide calls Decide, and supplies only the czxids that it asks for: those of contenders that still exist.
func decide(t *testing.T, l recipe.Listing, own string, all map[string]int64) recipe.Verdict {
	t.Helper()
	v := recipe.Decide(l, own, 0, nil)
	if len(v.Unknown) == 0 {
		return v
	}
	require.False(t, v.Holds, "it can't be told yet")
	v = recipe.Decide(l, own, 0, some(all, v.Unknown))
	require.Empty(t, v.Unknown)
	return v
}

func some(all map[string]int64, names []string) map[string]int64 {
	known := map[string]int64{}
	for _, name := range names {
		known[name] = all[name]
	}
	return known
}

func TestDecide(t *testing.T) {
	read, write := func(n int32) string { return child("__READ__", n) }, func(n int32) string { return child("__WRIT__", n) }
	kazoo, twin := "0f0e__lock__0000000004", "a-lock-0000000005"
	end, beyond := lock(math.MaxInt32), lock(math.MinInt32)
	type czxids = map[string]int64
	for name, c := range map[string]struct {
		children []string
		own      string
		czxids   czxids
		want     recipe.Verdict
		holds    bool
	}{
		"alone":                             {[]string{lock(5)}, lock(5), nil, recipe.Verdict{Present: true, First: lock(5)}, true},
		"first of three":                    {[]string{lock(7), lock(5), lock(6)}, lock(5), nil, recipe.Verdict{Present: true, First: lock(5)}, true},
		"second of three":                   {[]string{lock(7), lock(5), lock(6)}, lock(6), nil, recipe.Verdict{Present: true, Watch: lock(5), First: lock(5), Ahead: 1}, false},
		"third of three":                    {[]string{lock(7), lock(5), lock(6)}, lock(7), nil, recipe.Verdict{Present: true, Watch: lock(6), First: lock(5), Ahead: 2}, false},
		"with gaps":                         {[]string{lock(100), lock(3), lock(50)}, lock(100), nil, recipe.Verdict{Present: true, Watch: lock(50), First: lock(3), Ahead: 2}, false},
		"not there":                         {[]string{lock(5), lock(6)}, lock(7), nil, recipe.Verdict{}, false},
		"nobody there":                      {nil, lock(7), nil, recipe.Verdict{}, false},
		"not a contender":                   {[]string{"README", lock(5)}, "README", nil, recipe.Verdict{}, false},
		"foreign names":                     {[]string{"_c_x", "0", "README", "", lock(6), "x-latch-0000000001"}, lock(6), nil, recipe.Verdict{Present: true, First: lock(6)}, true},
		"Kazoo before us":                   {[]string{kazoo, lock(6)}, lock(6), nil, recipe.Verdict{Present: true, Watch: kazoo, First: kazoo, Ahead: 1}, false},
		"Kazoo behind us":                   {[]string{kazoo, lock(3)}, lock(3), nil, recipe.Verdict{Present: true, First: lock(3)}, true},
		"a made-up number far behind us":    {[]string{end, lock(3)}, lock(3), nil, recipe.Verdict{Present: true, First: lock(3)}, true},
		"a made-up number far before us":    {[]string{beyond, lock(3)}, lock(3), nil, recipe.Verdict{Present: true, Watch: beyond, First: beyond, Ahead: 1}, false},
		"at the end, not known":             {[]string{end, "b-lock-2147483647"}, end, nil, recipe.Verdict{Present: true, First: end, Unknown: []string{"b-lock-2147483647", end}}, false},
		"at the end, first":                 {[]string{end, "b-lock-2147483647"}, end, czxids{end: 7, "b-lock-2147483647": 8}, recipe.Verdict{Present: true, First: end}, true},
		"at the end, second":                {[]string{end, "b-lock-2147483647"}, end, czxids{end: 8, "b-lock-2147483647": 7}, recipe.Verdict{Present: true, Watch: "b-lock-2147483647", First: "b-lock-2147483647", Ahead: 1}, false},
		"at the end, the other has gone":    {[]string{end, "b-lock-2147483647"}, end, czxids{end: 8, "b-lock-2147483647": 0}, recipe.Verdict{Present: true, First: end}, true},
		"beyond the end":                    {[]string{beyond, end}, beyond, czxids{end: 7, beyond: 8}, recipe.Verdict{Present: true, Watch: end, First: end, Ahead: 1}, false},
		"at the end, after one beyond it":   {[]string{beyond, end}, end, czxids{end: 8, beyond: 7}, recipe.Verdict{Present: true, Watch: beyond, First: beyond, Ahead: 1}, false},
		"a tie, not known":                  {[]string{lock(5), twin}, lock(5), nil, recipe.Verdict{Present: true, First: lock(5), Unknown: []string{twin, lock(5)}}, false},
		"a tie, later":                      {[]string{lock(5), twin}, lock(5), czxids{lock(5): 1, twin: 2}, recipe.Verdict{Present: true, First: lock(5)}, true},
		"a tie, earlier":                    {[]string{lock(5), twin}, lock(5), czxids{lock(5): 2, twin: 1}, recipe.Verdict{Present: true, Watch: twin, First: twin, Ahead: 1}, false},
		"a tie of others":                   {[]string{lock(6), lock(5), twin}, lock(6), nil, recipe.Verdict{Present: true, Watch: twin, First: lock(5), Ahead: 2}, false},
		"of equal rank, and first":          {[]string{lock(5), child("rank-2-lock-", 4), child("rank-2-lock-", 6)}, child("rank-2-lock-", 4), nil, recipe.Verdict{Present: true, First: child("rank-2-lock-", 4)}, true},
		"outranked, and first":              {[]string{lock(5), child("-rank-2-lock-", 6)}, lock(5), nil, recipe.Verdict{Present: true, First: lock(5), Outranked: child("-rank-2-lock-", 6)}, true},
		"outranked, and second":             {[]string{lock(4), lock(5), child("-rank-2-lock-", 6)}, lock(5), nil, recipe.Verdict{Present: true, Watch: lock(4), First: lock(4), Ahead: 1, Outranked: child("-rank-2-lock-", 6)}, false},
		"of the highest rank, and second":   {[]string{lock(4), child("-rank-2-lock-", 5)}, child("-rank-2-lock-", 5), nil, recipe.Verdict{Present: true, Watch: lock(4), First: lock(4), Ahead: 1}, false},
		"outranked by a made-up number":     {[]string{lock(5), child("-rank-2-lock-", 1<<21)}, lock(5), nil, recipe.Verdict{Present: true, First: lock(5)}, true},
		"a mutex's contender among readers": {[]string{lock(6), read(5)}, lock(6), nil, recipe.Verdict{Present: true, First: lock(6), OtherKinds: []string{read(5)}}, true},
		"of another kind, and not there":    {[]string{read(5)}, lock(6), nil, recipe.Verdict{OtherKinds: []string{read(5)}}, false},
		"a reader behind readers":           {[]string{read(5), read(6)}, read(6), nil, recipe.Verdict{Present: true, First: read(6)}, true},
		"a reader behind a writer":          {[]string{write(4), read(5), read(6)}, read(6), nil, recipe.Verdict{Present: true, Watch: write(4), First: write(4), Ahead: 1}, false},
		"a reader before a writer":          {[]string{read(5), write(6)}, read(5), nil, recipe.Verdict{Present: true, First: read(5)}, true},
		"a writer behind readers":           {[]string{read(4), read(5), write(6)}, write(6), nil, recipe.Verdict{Present: true, Watch: read(5), First: read(4), Ahead: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			list := recipe.Listing{Names: slices.Clone(c.children), Counter: 1 << 20}
			c.want.Holds = c.holds
			require.Equal(t, c.want, recipe.Decide(list, c.own, 0, c.czxids))
			slices.Reverse(list.Names)
			require.Equal(t, c.want, recipe.Decide(list, c.own, 0, c.czxids), "the list is in no order")
		})
	}
}

// creation is a line of contenders without made-up names, in the order in which a server made them.
type creation struct {
	names   []string
	czxids  map[string]int64
	counter int32
}

// create makes n contenders with labels of one family, one after the other, as a server does whose counter is at number. From
// 2147483647 on the counter sticks, but gives negative numbers while creates overlap.
func create(rng *rand.Rand, n int, number int32, marks []string) creation {
	c := creation{czxids: map[string]int64{}, counter: number}
	czxid, ahead := 1+rng.Int64N(1<<40), int32(0)
	for i := range n {
		mark := marks[rng.IntN(len(marks))]
		given := c.counter + ahead
		if given >= 0 || rng.IntN(2) == 0 { // no create was under way
			given, ahead = c.counter, 0
		}
		name := fmt.Sprintf("_c_%08x-%d-%s%010d", rng.Uint32(), i, mark, given)
		c.names, c.czxids[name] = append(c.names, name), czxid
		if step := 1 + rng.Int32N(3); c.counter > math.MaxInt32-step {
			c.counter = math.MaxInt32
			ahead++
		} else {
			c.counter += step
		}
		czxid += 1 + rng.Int64N(9)
	}
	return c
}

var (
	starts = []int32{0, 1, 1<<30 - 5, 3<<29 - 5, 3 << 29, math.MaxInt32 - 5, math.MaxInt32, 999_999_990}
	kinds  = [][]string{{"lock-", "x__lock__"}, {"__READ__", "__WRIT__", "x__rlock__"}, {"-lease-1-", "-lease-3-"}}
)

func someCreation(rng *rand.Rand, n int, marks []string) creation {
	return create(rng, n, starts[rng.IntN(len(starts))], marks)
}

// listing lists the creation, and foreign names, in random order.
func (c creation) listing(rng *rand.Rand, foreign ...string) recipe.Listing {
	return recipe.Listing{Names: shuffled(rng, c.names, foreign...), Counter: c.counter}
}

// neighbour makes up to six contenders with any number, any label of the family and any time of creation.
func neighbour(rng *rand.Rand, c creation, marks []string) []string {
	var made []string
	for i := range rng.IntN(7) {
		number := []int32{0, -1, math.MaxInt32, math.MinInt32, int32(rng.Uint32()), c.counter + int32(rng.IntN(9)) - 4}[rng.IntN(6)]
		if k, _ := recipe.Parse(c.names[rng.IntN(len(c.names))]); rng.IntN(3) == 0 {
			number = k.Number
		}
		name := fmt.Sprintf("%c%d-%s%010d", 'A'+rng.IntN(50), i, marks[rng.IntN(len(marks))], number)
		if rng.IntN(4) == 0 {
			name = fmt.Sprintf("%c%d-0x%x-__READ__%010d", 'A'+rng.IntN(50), i, 1+rng.Int64N(1<<41), number)
			if k, _ := recipe.Parse("x" + marks[0] + "0000000000"); k.Kind != recipe.Read {
				continue
			}
		}
		made = append(made, name)
		c.czxids[name] = rng.Int64N(1 << 41) // 0: deleted since the list
	}
	return made
}

// Scenario 48, for the decisions: made-up contenders, with any numbers and at any places in the list, do not change the order of
// the others. There are never more holders than the kind allows, and the queue shows the others in their order.
func TestMadeUpContendersNeverChangeTheOrderOfTheOthers(t *testing.T) {
	for run := range 5000 {
		rng := rand.New(rand.NewPCG(uint64(run), 1))
		marks := kinds[rng.IntN(len(kinds))]
		c := someCreation(rng, 1+rng.IntN(12), marks)
		foreign := neighbour(rng, c, marks)
		l := c.listing(rng, append(foreign, "README", "_c_x")...)
		says := fmt.Sprintf("run %d: %v among %v, counter %d", run, c.names, foreign, c.counter)

		line, unknown := l.Line(nil)
		if len(unknown) > 0 {
			if line, unknown = l.Line(some(c.czxids, unknown)); len(unknown) > 0 {
				require.Fail(t, "still not known", "%v: %s", unknown, says)
			}
		}
		honest := slices.DeleteFunc(line, func(name string) bool { return slices.Contains(foreign, name) })
		require.Equal(t, c.names, honest, says)

		writers, readers, permits, size := 0, 0, 0, 3
		for i, own := range c.names {
			me, _ := recipe.Parse(own)
			if me.Kind == recipe.Permits {
				v := recipe.Decide(l, own, size, nil)
				if len(v.Unknown) > 0 {
					require.False(t, v.Holds, says)
					v = recipe.Decide(l, own, size, some(c.czxids, v.Unknown))
				}
				require.Empty(t, v.Unknown, says)
				if v.Holds {
					permits += me.Permits
				}
				continue
			}
			v := decide(t, l, own, c.czxids)
			for _, other := range c.names[:i] {
				if o, _ := recipe.Parse(other); !me.Kind.WaitsFor(o.Kind) {
					continue
				}
				require.False(t, v.Holds, "%s is before %s: %s", other, own, says)
				require.NotEmpty(t, v.Watch, says)
			}
			require.NotContains(t, c.names[i:], v.Watch, "%s: %s", own, says)
			switch {
			case v.Holds && me.Kind == recipe.Read:
				readers++
			case v.Holds:
				writers++
			}
		}
		require.LessOrEqual(t, permits, size, says)
		require.True(t, writers == 0 || writers == 1 && readers == 0, "%d writers, %d readers: %s", writers, readers, says)
	}
}

// Scenarios 24 and 26: whatever their ids, and across the wrap of the counter, each contender finds out the order of creation, which one to watch, and how many are ahead.
func TestDecideAgreesWithTheOrderOfCreation(t *testing.T) {
	for run := range 5000 {
		rng := rand.New(rand.NewPCG(uint64(run), 2))
		marks := kinds[rng.IntN(2)]
		c := someCreation(rng, 1+rng.IntN(30), marks)
		if rng.IntN(2) == 0 { // some have left
			c.names = slices.DeleteFunc(c.names, func(string) bool { return rng.IntN(3) == 0 })
		}
		for i, own := range c.names {
			me, _ := recipe.Parse(own)
			var inTheWay []string
			for _, name := range c.names[:i] {
				if o, _ := recipe.Parse(name); me.Kind.WaitsFor(o.Kind) {
					inTheWay = append(inTheWay, name)
				}
			}
			want := recipe.Verdict{Present: true, First: own, Ahead: len(inTheWay), Holds: len(inTheWay) == 0}
			if n := len(inTheWay); n > 0 {
				want.First, want.Watch = inTheWay[0], inTheWay[n-1]
			}
			require.Equal(t, want, decide(t, c.listing(rng, "README", "0", "_c_x"), own, c.czxids), "run %d: %s in %v", run, own, c.names)
			ahead, first, ok := recipe.Ahead(c.names, own)
			require.True(t, ok)
			require.Equal(t, want.Ahead, ahead)
			require.Equal(t, want.First, first)
		}
	}
}

// The counter comes from the Stat of the list, which counts creates and deletions and has room for half of it.
func TestTheCounterIsReadFromTheStat(t *testing.T) {
	for _, creates := range []uint32{0, 1, 1 << 30, 3<<29 - 1, 3 << 29, math.MaxInt32} {
		for _, children := range []uint32{0, 1, 100_000} {
			stat := zk.Stat{Cversion: int32(2*creates - children), NumChildren: int32(children)}
			require.Equal(t, int32(creates), recipe.NewListing(nil, stat).Counter)
			require.Equal(t, creates >= 3<<29, recipe.Late(recipe.NewListing(nil, stat).Counter))
		}
	}
}

func shuffled(rng *rand.Rand, names []string, more ...string) []string {
	all := append(slices.Clone(names), more...)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func TestKindsThatShareADirectory(t *testing.T) {
	all := []recipe.Kind{recipe.Lock, recipe.Read, recipe.Write, recipe.Permits}
	for _, a := range all {
		for _, b := range all {
			rw := (a == recipe.Read || a == recipe.Write) && (b == recipe.Read || b == recipe.Write)
			require.Equal(t, a == b || rw, a.Shares(b), "%v, %v", a, b)
			if rw {
				require.Equal(t, a == recipe.Write || b == recipe.Write, a.WaitsFor(b), "%v, %v", a, b)
			}
		}
	}
	require.Equal(t, "mutex, read lock, write lock, semaphore, nothing", fmt.Sprintf("%v, %v, %v, %v, %v",
		recipe.Lock, recipe.Read, recipe.Write, recipe.Permits, recipe.None))
}
