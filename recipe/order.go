package recipe

import (
	"cmp"
	"slices"
)

// before reports whether number a was given out before number b. The counter has 32 bits and runs over; numbers are
// compared as serial numbers (RFC 1982): a is before b when b is ahead of it by less than half the circle. That is
// right as long as the numbers that stand at one time span less than 2³¹ creates.
func before(a, b int32) bool { return a-b < 0 }

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
	// Ties are other contenders with the own number, which only their czxids can tell apart: the counter has run all
	// the way round, or a foreign client re-used a number. The verdict is not final until they are known.
	Ties []string
	// Foreign is a contender of another kind of lock, which must not share the directory; "" when there is none.
	Foreign string
}

// Holds reports whether nobody stands in the own contender's way.
func (v Verdict) Holds() bool { return v.Present && v.Ahead == 0 && len(v.Ties) == 0 }

// Decide reads a list of a directory from the point of view of the contender own. It is a pure function. earlier
// tells, for contenders with the own number, whether they were created before own; it may be nil.
func Decide(children []string, own string, earlier map[string]bool) Verdict {
	var v Verdict
	me, ok := Parse(own)
	if !ok {
		return v
	}
	var near, far int32 // distances of Watch and Head from own, none positive
	v.Head = own
	for _, name := range children {
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
		d := n.Number - me.Number
		if d == 0 {
			first, known := earlier[name]
			if !known {
				v.Ties = append(v.Ties, name)
			}
			if !first {
				continue
			}
		} else if !before(n.Number, me.Number) {
			continue
		}
		v.Ahead++
		if v.Watch == "" || d > near {
			v.Watch, near = name, d
		}
		if v.Head == own || d < far {
			v.Head, far = name, d
		}
	}
	if !v.Present {
		return Verdict{Foreign: v.Foreign}
	}
	return v
}

// Sort returns the contenders among children in order of arrival, whatever their kind. Equal numbers stay in the order
// of children.
func Sort(children []string) []string {
	type entry struct {
		name string
		n    int32
	}
	var line []entry
	for _, name := range children {
		if n, ok := Parse(name); ok {
			line = append(line, entry{name, n.Number})
		}
	}
	if len(line) == 0 {
		return nil
	}
	// Serial numbers are ordered only relative to each other: measured from one of them, which all are near to.
	base := line[0].n
	slices.SortStableFunc(line, func(a, b entry) int { return cmp.Compare(a.n-base, b.n-base) })
	names := make([]string, len(line))
	for i, e := range line {
		names[i] = e.name
	}
	return names
}
