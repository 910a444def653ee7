package recipe

import (
	"cmp"
	"slices"

	"github.com/go-zookeeper/zk"
)

// This file decides who holds, by pure functions of a list of the directory, our own name, the czxids of contenders whose
// numbers can't be compared and, for a semaphore, its size. The rule is tally.lets, also for TryLock (Foresee) and
// onlookers (Holding). A waiter may also hold without another list: see internal/queue/wait.go.
//
// # Order of contenders
//
// The server numbers a directory's sequential children by its counter of creates, so the number in a name tells the order,
// at no cost. That ends near the counter's last value, 2147483647: from there on, the server gives that number to every
// contender, and negative ones while creates overlap in its pipeline. The czxid of a znode always tells the order, but has
// to be read. A client that may create a child may choose its name, with any number, but not its czxid. So contenders are
// ordered
//
//   - by their numbers, and equal ones by their czxids, while our own number and the counter are below lateFrom;
//   - by their czxids from then on.
//
// Another client can choose neither our own number nor the counter, which comes with every list. (Each znode that it
// creates moves the counter by one, as any client's does. That is harmless: each rule is right where it is used.)
//
// Safety. Call a contender honest if the server gave it its number. Below lateFrom the server has numbered the honest ones
// in the order of their creates, one number each: the counter began at zero with the directory, which can't be deleted
// while it has children, and has not reached its end. So both rules put any two honest contenders in the order of their
// creates, whatever else is listed, and whichever rule each of the two uses. Hence a contender with a made-up name may come
// anywhere in the order, as if its owner had queued there, but can't change the order of two honest ones.

// lateFrom is three quarters of the counter's range.
const lateFrom = 3 << 29

// Late reports whether a number, or the counter, is so near the counter's end, or past it, that numbers give no order.
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

type tally struct {
	of      [numKinds]int
	permits int // that contenders of a sized kind want
}

func (t *tally) add(n Name) {
	t.of[n.Kind]++
	t.permits = min(t.permits+n.Permits, MaxPermits+1) // no sum overflows
}

// lets reports whether n holds if those counted are all that came before it.
func (t *tally) lets(n Name, size int) bool {
	k := n.Kind.facts()
	return k.holds(k, t, n, size)
}

// inWay returns how many of those counted are in the way of a later contender of kind k.
func (t *tally) inWay(k *kind) (n int) {
	for _, before := range k.waitsFor {
		n += t.of[before]
	}
	return n
}

// Verdict is what a list of the directory means for one contender.
type Verdict struct {
	// Present: our own znode is listed. If not, only OtherKinds is set: no contender holds without a znode.
	Present bool
	// Holds: no contender is in our way, and nothing is Unknown.
	Holds bool
	// Watch is the nearest contender in our way (of a sized kind, the one immediately before us); "" when there is none.
	Watch string
	// First is the first in line of those in our way; our own name when there is none.
	First string
	// Ahead is how many are in our way (of a sized kind: 0 if we hold, 1 if we are the first of the waiters, and so on).
	Ahead int
	// Permits are those of all contenders before us, of a sized kind.
	Permits int
	// Followed: contenders behind us are listed, of a sized kind.
	Followed bool
	// Outranked is a contender behind us, of an election, that is to lead before us: see rank.go; "" when there is none.
	Outranked string
	// Unknown are contenders, ours among them, whose czxids are needed. Until then the verdict is not final.
	Unknown []string
	// OtherKinds are contenders of other kinds of lock, which must not share the directory: otherKindsMax at most.
	OtherKinds []string
}

const otherKindsMax = 16

// Decide decides, from a list of its directory, whether the contender own holds; size is a semaphore's. czxids has the
// known czxids by name: none in the first call, then those of Verdict.Unknown. The czxid zero says that the znode was gone
// after the list: it is in no contender's way. Decide is a pure function.
func Decide(l Listing, own string, size int, czxids map[string]int64) Verdict {
	me, ok := Parse(own)
	if !ok {
		return Verdict{}
	}
	return decide(l, own, me, size, czxids)
}

// decide is Decide; own is "" in Foresee.
func decide(l Listing, own string, me Name, size int, czxids map[string]int64) Verdict {
	v, k := Verdict{First: own}, me.Kind.facts()
	o := order{late: Late(me.Number) || Late(l.Counter), czxids: czxids}
	mine := o.contender(own, me)
	var before []contender // of a sized kind: who waits depends on the order of all before us
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
		case !me.Kind.WaitsFor(n.Kind):
			continue
		}
		c := o.contender(name, n)
		if earlier, known := o.before(c, mine); !known {
			v.Unknown = append(v.Unknown, name)
			continue
		} else if !earlier {
			v.Followed = k.sized
			if n.goesBefore(me) && o.behind(c, l.Counter) {
				v.Outranked = name
			}
			continue
		}
		all.add(n)
		if v.Watch == "" || o.compare(near, c) < 0 {
			v.Watch, near = name, c
		}
		if v.First == own || o.compare(c, far) < 0 {
			v.First, far = name, c
		}
		if k.sized {
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
	v.Ahead, v.Permits = all.inWay(k), all.permits
	switch {
	case !k.sized:
	case v.Holds:
		v.Ahead = 0
	default:
		slices.SortFunc(before, o.compare)
		v.Ahead = 1 + waitersIn(before, size)
	}
	return v
}

// Foresee is Decide for a contender of kind k that would enter behind names. First may be wrong near the counter's end.
func Foresee(names []string, k Kind, permits, size int) Verdict {
	return decide(Listing{Names: names}, "", Name{Kind: k, Permits: permits}, size, nil)
}

// waitersIn returns how many contenders of line, a sized kind's whole line in order, wait.
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

// Line returns a listing's contenders of every kind in order of arrival, and those whose czxids are needed for that: if
// there are any, the order is not final. czxids are as for Decide; contenders known to be gone are left out. It is pure.
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

// Family returns those of names that are contenders and may share a directory with one of kind k, in no order.
func Family(names []string, k Kind) []string {
	var family []string
	for _, name := range names {
		if n, ok := Parse(name); ok && k.Shares(n.Kind) {
			family = append(family, name)
		}
	}
	return family
}

// Holding returns, for each contender of a line in order of arrival, whether it holds, each judged as it judges itself; size is
// a semaphore's. See Inside for those that may hold as well.
func Holding(line []string, size int) []bool {
	holds := make([]bool, len(line))
	var before tally
	for i, name := range line {
		if n, ok := Parse(name); ok {
			holds[i] = before.lets(n, size)
			before.add(n)
		}
	}
	return holds
}

// Ahead returns how many contenders of line, which is in order, are in own's way, and the first of them, or own. False: own
// is not in line.
func Ahead(line []string, own string) (ahead int, first string, ok bool) {
	me, _ := Parse(own)
	first = own
	for _, name := range line {
		if name == own {
			return ahead, first, true
		}
		if n, _ := Parse(name); me.Kind.WaitsFor(n.Kind) {
			if ahead++; ahead == 1 {
				first = name
			}
		}
	}
	return 0, "", false
}

// order compares contenders by one of the two rules.
type order struct {
	late   bool
	czxids map[string]int64
}

// contender is one of a list, with the zxid with which it entered, if known; a known 0 says that it is gone.
type contender struct {
	name string
	Name
	czxid int64
	known bool
}

func (o order) contender(name string, n Name) contender {
	czxid, known := o.czxids[name]
	return contender{name, n, czxid, known}
}

// compare compares by number and then czxid, or the reverse, and last by name: the order of the list has no effect.
func (o order) compare(a, b contender) int {
	first, second := cmp.Compare(a.Number, b.Number), cmp.Compare(a.czxid, b.czxid)
	if o.late {
		first, second = second, first
	}
	return cmp.Or(first, second, cmp.Compare(a.name, b.name))
}

// behind reports whether c, which is not before us, exists, and will be before us when we have gone to the end of the line. A
// made-up number above the counter would be behind us for ever.
func (o order) behind(c contender, counter int32) bool {
	return (c.czxid != 0 || !c.known) && (o.late || c.Number < counter)
}

// before reports whether c entered before own, and whether that is known. An own without a name has not entered.
func (o order) before(c, own contender) (before, known bool) {
	switch {
	case own.name == "":
		return true, true
	case !o.late && c.Number != own.Number:
		return c.Number < own.Number, true
	}
	return c.czxid != 0 && o.compare(c, own) < 0, c.known && own.known
}
