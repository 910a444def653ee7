package recipe

import (
	"cmp"
	"slices"

	"github.com/go-zookeeper/zk"
)

// Who came first? The server numbers a directory's sequential children by its counter of creates, so the number in a
// name tells, and costs nothing. It stops to tell near the counter's end, 2147483647: there, servers since 3.6 give that
// number to everybody, and negative ones while creates overlap in their pipeline; 3.5 goes on with negative numbers. The
// czxid of a znode always tells, and costs a read. And whoever may create a child may choose its name and any number in
// it, though not its czxid.
//
// So contenders are ordered
//
//   - by their numbers, and equal ones by their czxids, while the own number and the counter are below lateFrom;
//   - by their czxids from then on.
//
// Neither the own number nor the counter, which comes with every list, is for a neighbour to choose. (He can move the
// counter by one for each znode that he creates, as everybody does. That is harmless: each rule is right where it is
// used.)
//
// Safety. Call those contenders honest that the server has numbered. Below lateFrom it has numbered them in the order of
// their creates, one number each: the counter began at zero with the directory, which can't be deleted while anybody
// stands in it, and has not come to its end. So both rules put any two honest contenders in the order of their
// creates, whatever the rest of the list is, and whichever of the two either contender goes by when it looks. Hence a
// name that somebody made up may stand anywhere in the order, as if its owner had queued there; but it does not change
// who of two others is before whom. (On 3.5 the counter runs on through the negative numbers and comes to zero again;
// the signed order is right there too, as long as nobody stands in line while 2³¹ others are created. Its Stat does not
// tell 2³¹ from 0; so one who looks on may see a wrong order while contenders on both sides of that wrap stand in line.)
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

// NewListing returns the listing of names, which were listed together with stat.
func NewListing(names []string, stat zk.Stat) Listing {
	// Cversion counts creates and deletions of children, and wraps.
	return Listing{names, int32(uint32(stat.Cversion+stat.NumChildren) >> 1)}
}

// Verdict says how a contender stands in a list of its directory.
type Verdict struct {
	// Present: the own znode is in the list. When it is not, only Foreign is set.
	Present bool
	// Watch is the contender nearest before the own one that stands in its way; "" when there is none.
	Watch string
	// Head is the first in line of those that stand in its way; the own name when there is none.
	Head string
	// Ahead is the number of contenders before the own one that stand in its way.
	Ahead int
	// Unknown are contenders, the own one among them, whose czxids have to be known. Until then the verdict is not
	// final.
	Unknown []string
	// Foreign is a contender of another kind of lock, which must not share the directory; "" when there is none.
	Foreign string
}

// Holds reports whether nobody stands in the own contender's way.
func (v Verdict) Holds() bool { return v.Present && v.Ahead == 0 && len(v.Unknown) == 0 }

// Decide reads a list of a directory from the point of view of the contender own. It is a pure function. czxids are
// those that are known, by name: none, to begin with, and then those of Verdict.Unknown. Zero is the czxid of a znode
// that is gone since the list, which stands in nobody's way.
func Decide(l Listing, own string, czxids map[string]int64) Verdict {
	var v Verdict
	me, ok := Parse(own)
	if !ok {
		return v
	}
	o := order{late: Late(me.Number) || Late(l.Counter), czxids: czxids}
	var near, far rank // of Watch and Head
	v.Head = own
	for _, name := range l.Names {
		if name == own {
			v.Present = true
			continue
		}
		n, ok := Parse(name)
		switch {
		case !ok:
			continue
		case !me.Kind.shares(n.Kind):
			v.Foreign = name
			continue
		case !me.Kind.blocks(n.Kind):
			continue
		}
		r := o.rank(name, n)
		if before, known := o.before(r, own, me); !known {
			v.Unknown = append(v.Unknown, name)
			continue
		} else if !before {
			continue
		}
		v.Ahead++
		if v.Watch == "" || near.compare(r) < 0 {
			v.Watch, near = name, r
		}
		if v.Head == own || r.compare(far) < 0 {
			v.Head, far = name, r
		}
	}
	if !v.Present {
		return Verdict{Foreign: v.Foreign}
	}
	v.Unknown = o.withOwn(v.Unknown, own, me)
	return v
}

// Line returns the contenders of a listing in order of arrival, whatever their kind, and those whose czxids have to be
// known for that; then the order is not final. It is a pure function; czxids are as for Decide. Those that are known to
// be gone are left out.
func (l Listing) Line(czxids map[string]int64) (line, unknown []string) {
	o := order{late: Late(l.Counter), czxids: czxids}
	var ranks []rank
	for _, name := range l.Names {
		n, ok := Parse(name)
		if !ok {
			continue
		}
		if czxid, known := o.czxid(name, n); o.late && !known {
			unknown = append(unknown, name)
		} else if known && czxid == 0 {
			continue
		}
		ranks = append(ranks, o.rank(name, n))
	}
	slices.SortFunc(ranks, rank.compare)
	line = make([]string, len(ranks))
	for i, r := range ranks {
		line[i] = r.name
		if o.late || !(i > 0 && ranks[i-1].first == r.first || i+1 < len(ranks) && ranks[i+1].first == r.first) {
			continue
		}
		n, _ := Parse(r.name)
		if _, known := o.czxid(r.name, n); !known { // equal numbers
			unknown = append(unknown, r.name)
		}
	}
	return line, unknown
}

// Family returns those of names that are contenders which may stand in one directory with one of kind k, in no order.
func Family(names []string, k Kind) []string {
	var family []string
	for _, name := range names {
		if n, ok := Parse(name); ok && k.shares(n.Kind) {
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

// rank is what contenders are compared by: the number and then the czxid, or the other way round, and at last the name,
// so that no two are equal, and nothing depends on the order of a list.
type rank struct {
	first, second int64
	name          string
}

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.first, o.first), cmp.Compare(r.second, o.second), cmp.Compare(r.name, o.name))
}

// rank returns the rank of a contender; 0 stands for an unknown czxid.
func (o order) rank(name string, n Name) rank {
	czxid, _ := o.czxid(name, n)
	if o.late {
		return rank{czxid, int64(n.Number), name}
	}
	return rank{int64(n.Number), czxid, name}
}

// czxid returns the zxid with which a contender entered.
func (o order) czxid(name string, n Name) (czxid int64, known bool) {
	if n.Czxid != 0 {
		return n.Czxid, true
	}
	czxid, known = o.czxids[name]
	return czxid, known
}

// withOwn adds own to those whose czxids have to be known, if there are any and it is not.
func (o order) withOwn(unknown []string, own string, me Name) []string {
	if _, known := o.czxid(own, me); known || len(unknown) == 0 {
		return unknown
	}
	return append(unknown, own)
}

// before reports whether the contender with rank r entered before own, if that is known.
func (o order) before(r rank, own string, me Name) (before, known bool) {
	if !o.late && r.first != int64(me.Number) {
		return r.first < int64(me.Number), true
	}
	n, _ := Parse(r.name)
	czxid, known := o.czxid(r.name, n)
	_, ownKnown := o.czxid(own, me)
	return czxid != 0 && r.compare(o.rank(own, me)) < 0, known && ownKnown
}
