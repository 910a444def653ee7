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

// child returns a contender's name, by its number. The ids sort in another order than the numbers,
// with every kind.
func child(kind string, n int32) string {
	return fmt.Sprintf("_c_%08x-%s%010d", uint32(n)*2654435761, kind, n)
}

func lock(n int32) string { return child("lock-", n) }

// decide calls Decide, and supplies only the czxids that it asks for: those of contenders that
// still exist. size is a semaphore's.
func decide(
	t *testing.T, l recipe.Listing, own string, size int, all map[string]int64,
) recipe.Verdict {
	t.Helper()
	v := recipe.Decide(l, own, size, nil)
	if len(v.Unknown) == 0 {
		return v
	}
	require.False(t, v.Holds, "it can't be told yet")
	v = recipe.Decide(l, own, size, some(all, v.Unknown))
	require.Empty(t, v.Unknown)
	return v
}

// some returns the czxids of names.
func some(all map[string]int64, names []string) map[string]int64 {
	known := map[string]int64{}
	for _, name := range names {
		known[name] = all[name]
	}
	return known
}

func TestDecide(t *testing.T) {
	read := func(n int32) string { return child("__READ__", n) }
	write := func(n int32) string { return child("__WRIT__", n) }
	kazoo, twin := "0f0e__lock__0000000004", "a-lock-0000000005"
	end, beyond := lock(math.MaxInt32), lock(math.MinInt32)
	type czxids = map[string]int64
	for name, c := range map[string]struct {
		children []string
		own      string
		czxids   czxids
		want     recipe.Verdict
	}{
		"alone": {
			children: []string{lock(5)},
			own:      lock(5),
			want:     recipe.Verdict{Present: true, Holds: true, First: lock(5)},
		},
		"first of three": {
			children: []string{lock(7), lock(5), lock(6)},
			own:      lock(5),
			want:     recipe.Verdict{Present: true, Holds: true, First: lock(5)},
		},
		"second of three": {
			children: []string{lock(7), lock(5), lock(6)},
			own:      lock(6),
			want:     recipe.Verdict{Present: true, Watch: lock(5), First: lock(5), Ahead: 1},
		},
		"third of three": {
			children: []string{lock(7), lock(5), lock(6)},
			own:      lock(7),
			want:     recipe.Verdict{Present: true, Watch: lock(6), First: lock(5), Ahead: 2},
		},
		"with gaps": {
			children: []string{lock(100), lock(3), lock(50)},
			own:      lock(100),
			want:     recipe.Verdict{Present: true, Watch: lock(50), First: lock(3), Ahead: 2},
		},
		"not there": {
			children: []string{lock(5), lock(6)},
			own:      lock(7),
		},
		"nobody there": {
			own: lock(7),
		},
		"not a contender": {
			children: []string{"README", lock(5)},
			own:      "README",
		},
		"foreign names": {
			children: []string{"_c_x", "0", "README", "", lock(6), "x-latch-0000000001"},
			own:      lock(6),
			want:     recipe.Verdict{Present: true, Holds: true, First: lock(6)},
		},
		"Kazoo before us": {
			children: []string{kazoo, lock(6)},
			own:      lock(6),
			want:     recipe.Verdict{Present: true, Watch: kazoo, First: kazoo, Ahead: 1},
		},
		"Kazoo behind us": {
			children: []string{kazoo, lock(3)},
			own:      lock(3),
			want:     recipe.Verdict{Present: true, Holds: true, First: lock(3)},
		},
		"a made-up number far behind us": {
			children: []string{end, lock(3)},
			own:      lock(3),
			want:     recipe.Verdict{Present: true, Holds: true, First: lock(3)},
		},
		"a made-up number far before us": {
			children: []string{beyond, lock(3)},
			own:      lock(3),
			want:     recipe.Verdict{Present: true, Watch: beyond, First: beyond, Ahead: 1},
		},
		"at the end, not known": {
			children: []string{end, "b-lock-2147483647"},
			own:      end,
			want: recipe.Verdict{
				Present: true,
				First:   end,
				Unknown: []string{"b-lock-2147483647", end},
			},
		},
		"at the end, first": {
			children: []string{end, "b-lock-2147483647"},
			own:      end,
			czxids:   czxids{end: 7, "b-lock-2147483647": 8},
			want:     recipe.Verdict{Present: true, Holds: true, First: end},
		},
		"at the end, second": {
			children: []string{end, "b-lock-2147483647"},
			own:      end,
			czxids:   czxids{end: 8, "b-lock-2147483647": 7},
			want: recipe.Verdict{
				Present: true,
				Watch:   "b-lock-2147483647",
				First:   "b-lock-2147483647",
				Ahead:   1,
			},
		},
		"at the end, the other has gone": {
			children: []string{end, "b-lock-2147483647"},
			own:      end,
			czxids:   czxids{end: 8, "b-lock-2147483647": 0},
			want:     recipe.Verdict{Present: true, Holds: true, First: end},
		},
		"beyond the end": {
			children: []string{beyond, end},
			own:      beyond,
			czxids:   czxids{end: 7, beyond: 8},
			want:     recipe.Verdict{Present: true, Watch: end, First: end, Ahead: 1},
		},
		"at the end, after one beyond it": {
			children: []string{beyond, end},
			own:      end,
			czxids:   czxids{end: 8, beyond: 7},
			want:     recipe.Verdict{Present: true, Watch: beyond, First: beyond, Ahead: 1},
		},
		"a tie, not known": {
			children: []string{lock(5), twin},
			own:      lock(5),
			want: recipe.Verdict{
				Present: true,
				First:   lock(5),
				Unknown: []string{twin, lock(5)},
			},
		},
		"a tie, later": {
			children: []string{lock(5), twin},
			own:      lock(5),
			czxids:   czxids{lock(5): 1, twin: 2},
			want:     recipe.Verdict{Present: true, Holds: true, First: lock(5)},
		},
		"a tie, earlier": {
			children: []string{lock(5), twin},
			own:      lock(5),
			czxids:   czxids{lock(5): 2, twin: 1},
			want:     recipe.Verdict{Present: true, Watch: twin, First: twin, Ahead: 1},
		},
		"a tie of others": {
			children: []string{lock(6), lock(5), twin},
			own:      lock(6),
			want:     recipe.Verdict{Present: true, Watch: twin, First: lock(5), Ahead: 2},
		},
		"of equal rank, and first": {
			children: []string{lock(5), child("rank-2-lock-", 4), child("rank-2-lock-", 6)},
			own:      child("rank-2-lock-", 4),
			want:     recipe.Verdict{Present: true, Holds: true, First: child("rank-2-lock-", 4)},
		},
		"outranked, and first": {
			children: []string{lock(5), child("-rank-2-lock-", 6)},
			own:      lock(5),
			want: recipe.Verdict{
				Present:   true,
				Holds:     true,
				First:     lock(5),
				Outranked: child("-rank-2-lock-", 6),
			},
		},
		"outranked, and second": {
			children: []string{lock(4), lock(5), child("-rank-2-lock-", 6)},
			own:      lock(5),
			want: recipe.Verdict{
				Present:   true,
				Watch:     lock(4),
				First:     lock(4),
				Ahead:     1,
				Outranked: child("-rank-2-lock-", 6),
			},
		},
		"of the highest rank, and second": {
			children: []string{lock(4), child("-rank-2-lock-", 5)},
			own:      child("-rank-2-lock-", 5),
			want:     recipe.Verdict{Present: true, Watch: lock(4), First: lock(4), Ahead: 1},
		},
		"outranked by a made-up number": {
			children: []string{lock(5), child("-rank-2-lock-", 1<<21)},
			own:      lock(5),
			want:     recipe.Verdict{Present: true, Holds: true, First: lock(5)},
		},
		"a mutex's contender among readers": {
			children: []string{lock(6), read(5)},
			own:      lock(6),
			want: recipe.Verdict{
				Present:    true,
				Holds:      true,
				First:      lock(6),
				OtherKinds: []string{read(5)},
			},
		},
		"of another kind, and not there": {
			children: []string{read(5)},
			own:      lock(6),
			want:     recipe.Verdict{OtherKinds: []string{read(5)}},
		},
		"a reader behind readers": {
			children: []string{read(5), read(6)},
			own:      read(6),
			want:     recipe.Verdict{Present: true, Holds: true, First: read(6)},
		},
		"a reader behind a writer": {
			children: []string{write(4), read(5), read(6)},
			own:      read(6),
			want:     recipe.Verdict{Present: true, Watch: write(4), First: write(4), Ahead: 1},
		},
		"a reader before a writer": {
			children: []string{read(5), write(6)},
			own:      read(5),
			want:     recipe.Verdict{Present: true, Holds: true, First: read(5)},
		},
		"a writer behind readers": {
			children: []string{read(4), read(5), write(6)},
			own:      write(6),
			want:     recipe.Verdict{Present: true, Watch: read(5), First: read(4), Ahead: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := recipe.Listing{Names: slices.Clone(c.children), Counter: 1 << 20}
			require.Equal(t, c.want, recipe.Decide(list, c.own, 0, c.czxids))
			slices.Reverse(list.Names)
			require.Equal(t, c.want, recipe.Decide(list, c.own, 0, c.czxids),
				"the list is in no order")
		})
	}
}

// creation is a line of contenders without made-up names, in the order in which a server made them.
type creation struct {
	names   []string
	czxids  map[string]int64
	counter int32
}

// create makes n contenders with labels of one family, one after the other, as a server does whose
// counter is at number. From 2147483647 on the counter sticks, but gives negative numbers while
// creates overlap.
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

// starts are counters at which a creation begins.
var starts = []int32{
	0, 1, 1<<30 - 5, 3<<29 - 5, 3 << 29, math.MaxInt32 - 5, math.MaxInt32, 999_999_990,
}

// kinds are the labels of the families that share a directory.
var kinds = [][]string{
	{"lock-", "x__lock__"},
	{"__READ__", "__WRIT__", "x__rlock__"},
	{"-lease-1-", "-lease-3-"},
}

func someCreation(rng *rand.Rand, n int, marks []string) creation {
	return create(rng, n, starts[rng.IntN(len(starts))], marks)
}

// listing lists the creation, and foreign names, in random order.
func (c creation) listing(rng *rand.Rand, foreign ...string) recipe.Listing {
	return recipe.Listing{Names: shuffled(rng, c.names, foreign...), Counter: c.counter}
}

// neighbour makes up to six contenders with any number, any label of the family and any time of
// creation.
func neighbour(rng *rand.Rand, c creation, marks []string) []string {
	readable, _ := recipe.Parse("x" + marks[0] + "0000000000")
	var made []string
	for i := range rng.IntN(7) {
		number := anyNumber(rng, c)
		id := fmt.Sprintf("%c%d", 'A'+rng.IntN(50), i)
		name := fmt.Sprintf("%s-%s%010d", id, marks[rng.IntN(len(marks))], number)
		if rng.IntN(4) == 0 { // as Curator names a reader inside a writer's lock
			if readable.Kind != recipe.Read {
				continue
			}
			name = fmt.Sprintf("%s-0x%x-__READ__%010d", id, 1+rng.Int64N(1<<41), number)
		}
		made = append(made, name)
		c.czxids[name] = rng.Int64N(1 << 41) // 0: deleted since the list
	}
	return made
}

// anyNumber returns the number of one of c's contenders, or another number.
func anyNumber(rng *rand.Rand, c creation) int32 {
	if rng.IntN(3) == 0 {
		k, _ := recipe.Parse(c.names[rng.IntN(len(c.names))])
		return k.Number
	}
	near := c.counter + int32(rng.IntN(9)) - 4
	all := []int32{0, -1, math.MaxInt32, math.MinInt32, int32(rng.Uint32()), near}
	return all[rng.IntN(len(all))]
}

// Scenario 48, for the decisions: made-up contenders, with any numbers and at any places in the
// list, do not change the order of the others. There are never more holders than the kind allows,
// and the queue shows the others in their order.
func TestMadeUpContendersNeverChangeTheOrderOfTheOthers(t *testing.T) {
	for run := range 5000 {
		rng := rand.New(rand.NewPCG(uint64(run), 1))
		marks := kinds[rng.IntN(len(kinds))]
		c := someCreation(rng, 1+rng.IntN(12), marks)
		foreign := neighbour(rng, c, marks)
		l := c.listing(rng, append(foreign, "README", "_c_x")...)
		says := fmt.Sprintf("run %d: %v among %v, counter %d", run, c.names, foreign, c.counter)
		requireOrder(t, c, l, foreign, says)
		requireExclusion(t, c, l, says)
	}
}

// requireOrder demands that the line of l shows c's contenders in their order.
func requireOrder(t *testing.T, c creation, l recipe.Listing, foreign []string, says string) {
	t.Helper()
	line, unknown := l.Line(nil)
	if len(unknown) > 0 {
		line, unknown = l.Line(some(c.czxids, unknown))
		require.Empty(t, unknown, "still not known: %s", says)
	}
	honest := slices.DeleteFunc(line, func(name string) bool {
		return slices.Contains(foreign, name)
	})
	require.Equal(t, c.names, honest, says)
}

// requireExclusion demands that c's contenders wait for one another as their kinds say, and that
// not more of them hold than the kind allows.
func requireExclusion(t *testing.T, c creation, l recipe.Listing, says string) {
	t.Helper()
	const size = 3
	holders, permits := map[recipe.Kind]int{}, 0
	for i, own := range c.names {
		me, _ := recipe.Parse(own)
		v := decide(t, l, own, size, c.czxids)
		if v.Holds {
			holders[me.Kind]++
			permits += me.Permits
		}
		if me.Kind == recipe.Permits {
			continue // those before it may hold beside it
		}
		if len(inTheWay(c.names[:i], me.Kind)) > 0 {
			require.False(t, v.Holds, "others are before %s: %s", own, says)
			require.NotEmpty(t, v.Watch, says)
		}
		require.NotContains(t, c.names[i:], v.Watch, "%s: %s", own, says)
	}
	require.LessOrEqual(t, permits, size, says)
	readers, alone := holders[recipe.Read], holders[recipe.Lock]+holders[recipe.Write]
	require.True(t, alone == 0 || alone == 1 && readers == 0,
		"%d hold, who should hold alone, and %d readers: %s", alone, readers, says)
}

// inTheWay returns those of names that are in the way of a later contender of kind k.
func inTheWay(names []string, k recipe.Kind) []string {
	var found []string
	for _, name := range names {
		if n, _ := recipe.Parse(name); k.WaitsFor(n.Kind) {
			found = append(found, name)
		}
	}
	return found
}

// Scenarios 24 and 26: whatever their ids, and across the wrap of the counter, each contender finds
// out the order of creation, which one to watch, and how many are ahead.
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
			before := inTheWay(c.names[:i], me.Kind)
			n := len(before)
			want := recipe.Verdict{Present: true, First: own, Ahead: n, Holds: n == 0}
			if n > 0 {
				want.First, want.Watch = before[0], before[n-1]
			}
			got := decide(t, c.listing(rng, "README", "0", "_c_x"), own, 0, c.czxids)
			require.Equal(t, want, got, "run %d: %s in %v", run, own, c.names)
			ahead, first, ok := recipe.Ahead(c.names, own)
			require.True(t, ok)
			require.Equal(t, want.Ahead, ahead)
			require.Equal(t, want.First, first)
		}
	}
}

// The counter comes from the Stat of the list, which counts creates and deletions and has room for
// half of it.
func TestTheCounterIsReadFromTheStat(t *testing.T) {
	for _, creates := range []uint32{0, 1, 1 << 30, 3<<29 - 1, 3 << 29, math.MaxInt32} {
		for _, children := range []uint32{0, 1, 100_000} {
			stat := zk.Stat{
				Cversion:    int32(2*creates - children),
				NumChildren: int32(children),
			}
			counter := recipe.NewListing(nil, stat).Counter
			require.Equal(t, int32(creates), counter)
			require.Equal(t, creates >= 3<<29, recipe.Late(counter))
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
	ofReadWrite := func(k recipe.Kind) bool { return k == recipe.Read || k == recipe.Write }
	for _, a := range all {
		for _, b := range all {
			both := ofReadWrite(a) && ofReadWrite(b)
			require.Equal(t, a == b || both, a.Shares(b), "%v, %v", a, b)
			if both {
				waits := a == recipe.Write || b == recipe.Write
				require.Equal(t, waits, a.WaitsFor(b), "%v, %v", a, b)
			}
		}
	}
	require.Equal(t, "mutex", recipe.Lock.String())
	require.Equal(t, "read lock", recipe.Read.String())
	require.Equal(t, "write lock", recipe.Write.String())
	require.Equal(t, "semaphore", recipe.Permits.String())
	require.Equal(t, "nothing", recipe.None.String())
}
