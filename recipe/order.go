package recipe

import (
	"cmp"
	"slices"

	"github.com/go-zookeeper/zk"
)

// This file decides who holds. Everything in it is a pure function: of a list of the directory, our own name, the czxids of
// contenders whose numbers can't be compared and, of a semaphore, its size. The rule is tally.lets, also for TryLock (foresee)
// and for onlookers (holders.go). Where that is safe, a waiter holds without another list: see predecessor.go.
//
// # Which contender is before which
//
// The server numbers a directory's sequential children by its counter of creates, so the number in a name tells the
// order, and costs nothing. That ends near the counter's last value, 2147483647: from there on, servers since 3.6 give
// that number to every contender, and negative ones while creates overlap in their pipeline; 3.5 goes on with negative numbers.
// The czxid of a znode always tells the order, and costs a read. And a client that may create a child may choose its
// name, and any number in it, but not its czxid.
//
// So contenders are ordered
//
//   - by their numbers, and equal ones by their czxids, while our own number and the counter are below lateFrom;
//   - by their czxids from then on.
//
// Another client can choose neither our own number nor the counter, which comes with every list. (It moves the counter by
// one with each znode that it creates, as all clients do. That is harmless: each rule is right where it is used.)
//
// Safety. Call those contenders honest whose numbers the server gave. Below lateFrom it has numbered them in the order of
// their creates, one number each: the counter began at zero with the directory, which can't be deleted while it has
// children, and has not come to its end. So both rules put any two honest contenders in the order of their creates,
// whatever else is in the list, and whichever rule each of the two uses when it looks. Hence a contender with a made-up
// name may come anywhere in the order, as if its owner had queued there; but it can't change the order of two honest
// contenders. (On 3.5 the counter passes through the negative numbers back to zero. The order holds there too, unless a
// contender stays in line while 2³¹ others are created. But Stat does not distinguish a counter of 2³¹ from one of 0, so an
// onlooker may see a wrong order while contenders from before and after that point are in line.)
//
// A reader that a writer became by Downgrade has the writer's number and, in its name, the writer's czxid: it counts as
// entered when the writer did.

// lateFrom is three quarters of the counter's way.
const lateFrom = 3 << 29

// Late reports whether a number, or the counter, is so near the counter's end, or beyond it, that numbers do not order.
func Late(number int32) bool { return number < 0 || number >= lateFrom }

// Listing is a directory as a list showed it.
type Listing struct {
	Names   []string
	Counter int32 // how many children the directory has had, modulo 2³¹
}

// NewListing is a listing of names that were listed together with stat.
func NewListing(names []string, stat zk.Stat) Listing {
	// Cversion counts creates and deletions of children, and wraps.
	return Listing{names, int32(uint32(stat.Cversion+stat.NumChildren) >> 1)}
}

// tally counts contenders by what they want.
type tally struct {
	of      [kinds]int
	permits int // of those of a semaphore
}

func (t *tally) add(n Name) {
	t.of[n.Kind]++
	t.permits = min(t.permits+n.Permits, MaxPermits+1) // no sum overflows
}

// lets reports whether a contender holds when those counted are all that came before it: none is in its way or, of a semaphore,
// their permits and its own are at most its size.
func (t *tally) lets(n Name, size int) bool {
	if n.Kind == Permits {
		return t.permits+n.Permits <= size
	}
	return t.inWay(n.Kind) == 0
}

// inWay returns how many of those counted are in the way of a contender of kind k that comes after them.
func (t *tally) inWay(k Kind) (n int) {
	for ahead, count := range t.of {
		if k.blocks(Kind(ahead)) {
			n += count
		}
	}
	return n
}

// Verdict is what a list of the directory means for one contender.
type Verdict struct {
	// Present: our own znode is in the list. When it is not, only OtherKinds is set: no contender holds without a znode.
	Present bool
	// Holds: no contender is in its way, and nothing is Unknown.
	Holds bool
	// Watch is the nearest contender before ours that is in its way; "" when there is none. (Of a semaphore, the
	// contender immediately before ours.)
	Watch string
	// First is the first in line of those in its way; our own name when there is none.
	First string
	// Ahead is the number of contenders in its way. (Of a semaphore, 0 for one that holds; 1 for the first of those that
	// wait, and so on.)
	Ahead int
	// Permits are those of all contenders before ours, of a semaphore.
	Permits int
	// Unknown are contenders, ours among them, whose czxids have to be known. Until then the verdict is not final.
	Unknown []string
	// OtherKinds are contenders of other kinds of lock, which must not share the directory: otherKindsMax at most.
	OtherKinds []string
}

// otherKindsMax bounds the contenders of other kinds that are looked at.
const otherKindsMax = 16

// Decide decides, from a list of its directory, whether the contender own holds; size is that of a semaphore. czxids has
// the known czxids by name: none in the first call, and then those of Verdict.Unknown. A znode that was found to be gone
// after the list has the czxid zero, and is in no contender's way. It is a pure function.
func Decide(l Listing, own string, size int, czxids map[string]int64) Verdict {
	me, ok := Parse(own)
	if !ok {
		return Verdict{}
	}
	return decide(l, own, me, size, czxids)
}

// decide is Decide; own is "" in foresee.
func decide(l Listing, own string, me Name, size int, czxids map[string]int64) Verdict {
	v := Verdict{First: own}
	o := order{late: Late(me.Number) || Late(l.Counter), czxids: czxids}
	mine := o.contender(own, me)
	var before []contender // of a semaphore, all before it: which of them wait depends on their order
	var near, far contender
	var all tally
	for _, name := range l.Names {
		n, ok := Parse(name)
		switch {
		case !ok:
			continue
		case name == own:
			v.Present = true
			continue
		case !me.Kind.Shares(n.Kind):
			if len(v.OtherKinds) < otherKindsMax {
				v.OtherKinds = append(v.OtherKinds, name)
			}
			continue
		case !me.Kind.blocks(n.Kind):
			continue
		}
		c := o.contender(name, n)
		if earlier, known := o.before(c, mine); !known {
			v.Unknown = append(v.Unknown, name)
			continue
		} else if !earlier {
			continue
		}
		all.add(n)
		if v.Watch == "" || o.compare(near, c) < 0 {
			v.Watch, near = name, c
		}
		if v.First == own || o.compare(c, far) < 0 {
			v.First, far = name, c
		}
		if me.Kind == Permits {
			before = append(before, c)
		}
	}
	if !v.Present && own != "" {
		return Verdict{OtherKinds: v.OtherKinds}
	}
	if len(v.Unknown) > 0 && !mine.known {
		v.Unknown = append(v.Unknown, own)
	}
	v.Holds = all.lets(me, size) && len(v.Unknown) == 0
	v.Ahead, v.Permits = all.inWay(me.Kind), all.permits
	if me.Kind == Permits {
		v.Ahead = 0
		if !v.Holds {
			slices.SortFunc(before, o.compare)
			v.Ahead = 1 + waitersIn(before, size)
		}
	}
	return v
}

// foresee is Decide for a contender of kind k that has not entered: all names would be before it. It goes by their numbers, so
// near the counter's end First may be the wrong one.
func foresee(names []string, k Kind, permits, size int) Verdict {
	return decide(Listing{Names: names}, "", Name{Kind: k, Permits: permits}, size, nil)
}

// waitersIn returns how many contenders of line wait. It is a semaphore's line from the first contender on, in order.
func waitersIn(line []contender, size int) (n int) {
	var all tally
	for _, c := range line {
		if !all.lets(c.Name, size) {
			n++
		}
		all.add(c.Name)
	}
	return n
}

// Line returns the contenders of a listing in order of arrival, whatever their kind, and those whose czxids have to be
// known for that; then the order is not final. It is a pure function; czxids are as for Decide. Those that are known to
// be gone are left out.
func (l Listing) Line(czxids map[string]int64) (line, unknown []string) {
	o := order{late: Late(l.Counter), czxids: czxids}
	var all []contender
	for _, name := range l.Names {
		if n, ok := Parse(name); ok {
			if c := o.contender(name, n); !c.known || c.czxid != 0 {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, o.compare)
	line = make([]string, len(all))
	for i, c := range all {
		line[i] = c.name
		equal := i > 0 && all[i-1].Number == c.Number || i+1 < len(all) && all[i+1].Number == c.Number
		if !c.known && (o.late || equal) {
			unknown = append(unknown, c.name)
		}
	}
	return line, unknown
}

// Family returns those of names that are contenders which may share one directory with one of kind k, in no order.
func Family(names []string, k Kind) []string {
	var family []string
	for _, name := range names {
		if n, ok := Parse(name); ok && k.Shares(n.Kind) {
			family = append(family, name)
		}
	}
	return family
}

// order puts contenders in order by one of the two rules.
type order struct {
	late   bool
	czxids map[string]int64
}

// contender is one of a list, with the zxid with which it entered, if that is known; a known 0 says that it is gone.
type contender struct {
	name string
	Name
	czxid int64
	known bool
}

func (o order) contender(name string, n Name) contender {
	czxid, known := o.czxids[name]
	if n.Czxid != 0 {
		czxid, known = n.Czxid, true
	}
	return contender{name, n, czxid, known}
}

// compare compares by the number and then the czxid, or the other way round, and at last by the name, so that no two are
// equal, and nothing depends on the order of a list.
func (o order) compare(a, b contender) int {
	first, second := cmp.Compare(a.Number, b.Number), cmp.Compare(a.czxid, b.czxid)
	if o.late {
		first, second = second, first
	}
	return cmp.Or(first, second, cmp.Compare(a.name, b.name))
}

// before reports whether c entered before own, if that is known. An own without a name has not entered.
func (o order) before(c, own contender) (before, known bool) {
	switch {
	case own.name == "":
		return true, true
	case !o.late && c.Number != own.Number:
		return c.Number < own.Number, true
	}
	return c.czxid != 0 && o.compare(c, own) < 0, c.known && own.known
}
