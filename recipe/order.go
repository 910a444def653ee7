package recipe

import (
	"cmp"
	"slices"

	"github.com/go-zookeeper/zk"
)

// This file decides who holds. Its functions are pure. They know a list of the directory, our own
// name, the czxids of contenders whose numbers can't be compared and, for a semaphore, its size.
//
// One rule says who holds: tally.lets. Decide uses it for a contender in line, Foresee for a
// TryLock, which has not entered yet, and Holding for onlookers. A waiter may also hold without
// another list: see internal/queue/wait.go.
//
// # Order of contenders
//
// The server numbers a directory's sequential children by its counter of creates, so the number in
// a name tells the order, and costs no request. That ends near the counter's last value,
// 2147483647. From there on, the server gives that number to every contender, and negative numbers
// while creates overlap in its pipeline. The czxid of a znode always tells the order, but it has to
// be read. A client that may create a child may choose its name, and so any number, but it can't
// choose the czxid. So contenders are ordered
//
//   - by their numbers, and equal ones by their czxids, while our own number and the counter are
//     below lateFrom;
//   - by their czxids from then on.
//
// Another client can choose neither our own number nor the counter, which comes with every list.
// Each znode that it creates advances the counter by one, as any client's does. That is harmless,
// because each rule is right where it is used.
//
// # Safety
//
// Call a contender honest if the server gave it its number. Below lateFrom, the server has numbered
// the honest ones in the order of their creates, one number each: the counter began at zero with
// the directory, which can't be deleted while it has children, and it has not reached its end. So
// both rules put any two honest contenders in the order of their creates, whatever else is listed,
// and whichever rule each of the two uses. Hence a contender with a made-up name may come anywhere
// in the order, as if its owner had entered there, but it can't change the order of two honest
// ones.

// lateFrom is three quarters of the counter's range.
const lateFrom = 3 << 29

// Late reports whether a number, or the counter, is so near the counter's end, or past it, that
// numbers do not tell the order.
func Late(number int32) bool { return number < 0 || number >= lateFrom }

// Listing is a directory as a list showed it.
type Listing struct {
	Names   []string
	Counter int32 // how many children the directory has had, modulo 2³¹
}

// NewListing returns the listing of names that were listed together with stat.
func NewListing(names []string, stat zk.Stat) Listing {
	// Cversion counts creates and deletions of children, and wraps.
	return Listing{names, int32(uint32(stat.Cversion+stat.NumChildren) >> 1)}
}

// tally counts contenders that are before another one.
type tally struct {
	of      [numKinds]int
	permits int // that contenders of a sized kind want
}

func (t *tally) add(n Name) {
	t.of[n.Kind]++
	t.permits = min(t.permits+n.Permits, MaxPermits+1) // no sum overflows
}

// lets reports whether n holds if those counted are all that came before it.
func (t tally) lets(n Name, size int) bool {
	k := n.Kind.facts()
	return k.holds(k, t, n, size)
}

// inWay returns how many of those counted are in the way of a later contender of kind k.
func (t tally) inWay(k *kind) int {
	all := 0
	for _, before := range k.waitsFor {
		all += t.of[before]
	}
	return all
}

// Verdict is what a list of the directory means for one contender, here "we". The first half of its
// fields decides what we do. The second half is for the messages about our place in line, and for
// what we owe to other contenders.
type Verdict struct {
	// Present reports whether our own znode is listed. If it is not, only OtherKinds is set: no
	// contender holds without a znode.
	Present bool
	// Holds reports that no contender is in our way or, of a sized kind, that those before us leave
	// us enough permits. It is false while Unknown is not empty.
	Holds bool
	// Unknown are the contenders, ours among them, whose czxids are needed. The verdict is not
	// final until Decide is called with these.
	Unknown []string
	// Watch is the nearest contender in our way, or "" if there is none. Of a sized kind it is the
	// contender immediately before us, even if we hold.
	Watch string
	// Outranked is a candidate of an election that is behind us and is to lead before us (see
	// rank.go), or "" if there is none.
	Outranked string
	// Permits is the number of permits that all contenders before us want, of a sized kind.
	Permits int

	// Ahead is how many contenders are in our way. Of a sized kind it is our place among those that
	// wait: 0 if we hold, 1 if we are the first of them, and so on. It is told to callers. And it
	// decides: a waiter with one contender in its way may need no list at its turn.
	Ahead int
	// First is the first in line of the contenders in our way, or our own name if there is none.
	First string
	// Followed reports whether contenders are listed behind us, of a sized kind. They may have to
	// be told that we hold.
	Followed bool
	// OtherKinds are contenders of other kinds of lock, which must not share the directory: at most
	// 16 of them.
	OtherKinds []string
}

const maxOtherKinds = 16 // in a Verdict

// Decide decides, by a list of its directory, whether the contender own holds. It is a pure
// function. It returns the zero Verdict if own is not a contender's name.
//
// size is a semaphore's size. czxids has the known czxids by name: none in the first call, then
// those of Verdict.Unknown. The czxid zero says that the znode was gone after the list. Such a
// contender is in nobody's way. Own's must not be zero: without its znode there is nothing to
// decide.
func Decide(l Listing, own string, size int, czxids map[string]int64) Verdict {
	us, ok := Parse(own)
	if !ok {
		return Verdict{}
	}
	o := order{late: Late(us.Number) || Late(l.Counter), czxids: czxids}
	d := decision{
		order:   o,
		counter: l.Counter,
		us:      o.contender(own, us),
		entered: true,
		v:       Verdict{First: own},
	}
	d.add(l.Names)
	if !d.v.Present {
		return Verdict{OtherKinds: d.v.OtherKinds}
	}
	if len(d.v.Unknown) > 0 && !d.us.known {
		d.v.Unknown = append(d.v.Unknown, own) // the other czxids are to be compared with it
	}
	return d.verdict(size)
}

// Foresee returns what Decide would return for a contender of kind k that entered behind names. k
// must not be None. In the result Present is false, because the contender has no znode yet, and
// First is "" if nobody is in its way.
//
// The order is by numbers alone. So near the end of the directory's counter First, Watch and, of a
// sized kind, Ahead may be wrong. Holds is right.
func Foresee(names []string, k Kind, permits, size int) Verdict {
	d := decision{us: contender{Name: Name{Kind: k, Permits: permits}}}
	d.add(names)
	return d.verdict(size)
}

// decision is what Decide and Foresee gather from the names of a list.
type decision struct {
	order   order
	counter int32     // the directory's
	us      contender // the contender that the decision is for
	entered bool      // false in Foresee: every contender that is listed is before us

	v           Verdict     // so far; verdict completes it
	before      tally       // of those that are in our way or, of a sized kind, before us
	numBefore   int         // how many they are
	first, last contender   // the first and the last of them, if there are any
	line        []contender // all of them, in no order, of a sized kind only
}

// add adds the contenders among names to the decision.
func (d *decision) add(names []string) {
	for _, name := range names {
		c := contender{name: name}
		if !c.read(name) {
			continue
		}
		c.czxid, c.known = d.order.czxids[name]
		switch d.relationOf(&c) {
		case harmless:
		case ourselves:
			d.v.Present = true
		case foreign:
			if len(d.v.OtherKinds) < maxOtherKinds {
				d.v.OtherKinds = append(d.v.OtherKinds, name)
			}
		case unordered:
			d.v.Unknown = append(d.v.Unknown, name)
		case beforeUs:
			d.addBefore(&c)
		case behindUs:
			d.addBehind(&c)
		}
	}
}

// relation is what a listed contender is to the one that the decision is for.
type relation int

const (
	harmless  relation = iota // gone since the list, or of a kind that is never in our way
	ourselves                 // our own contender
	foreign                   // of a kind that must not share the directory with ours
	unordered                 // before or behind us: that needs a czxid which is not known
	beforeUs                  // in our way or, of a sized kind, before us
	behindUs
)

// relationOf returns what the contender c is to us.
func (d *decision) relationOf(c *contender) relation {
	kind := d.us.Kind
	switch {
	case d.entered && c.name == d.us.name:
		return ourselves
	case !kind.Shares(c.Kind):
		return foreign
	case !kind.WaitsFor(c.Kind):
		return harmless
	case !d.entered:
		return beforeUs
	}
	if c.gone() {
		return harmless
	}
	czxidsDecide := d.order.late || c.Number == d.us.Number
	if czxidsDecide && (!c.known || !d.us.known) {
		return unordered
	}
	if d.order.compare(c, &d.us) < 0 {
		return beforeUs
	}
	return behindUs
}

// addBefore adds a contender that is before us.
func (d *decision) addBefore(c *contender) {
	if d.numBefore == 0 || d.order.compare(c, &d.first) < 0 {
		d.first = *c
	}
	if d.numBefore == 0 || d.order.compare(&d.last, c) < 0 {
		d.last = *c
	}
	d.numBefore++
	d.before.add(c.Name)
	if d.us.Kind.Sized() {
		d.line = append(d.line, *c)
	}
}

// addBehind adds a contender that is behind us.
func (d *decision) addBehind(c *contender) {
	d.v.Followed = d.us.Kind.Sized()
	if c.goesBefore(d.us.Name) && d.precedesNewcomers(c) {
		d.v.Outranked = c.name
	}
}

// precedesNewcomers reports whether c is before every contender that enters now, as we do when we
// step aside. One with a made-up number above the counter is not: it would stay behind us forever.
func (d *decision) precedesNewcomers(c *contender) bool {
	return d.order.late || c.Number < d.counter
}

// verdict returns the verdict when all names have been added.
func (d *decision) verdict(size int) Verdict {
	v := d.v
	if d.numBefore > 0 {
		v.First, v.Watch = d.first.name, d.last.name
	}
	v.Holds = d.before.lets(d.us.Name, size) && len(v.Unknown) == 0
	v.Permits = d.before.permits
	switch {
	case !d.us.Kind.Sized():
		v.Ahead = d.numBefore
	case !v.Holds:
		v.Ahead = 1 + waitersIn(d.order.sorted(d.line), size)
	}
	return v
}

// waitersIn returns how many contenders of line wait. line is all of a sized kind's line, or the
// first part of it.
func waitersIn(line []*contender, size int) int {
	waiters := 0
	var before tally
	for _, c := range line {
		if !before.lets(c.Name, size) {
			waiters++
		}
		before.add(c.Name)
	}
	return waiters
}

// Line returns the listing's contenders of every kind in order of arrival, without those that are
// known to be gone. unknown are the contenders whose czxids are needed for that. If there are any,
// the order is not final. czxids are as for Decide. Line is a pure function.
func (l Listing) Line(czxids map[string]int64) (line, unknown []string) {
	o := order{late: Late(l.Counter), czxids: czxids}
	all := make([]contender, 0, len(l.Names))
	for _, name := range l.Names {
		n, ok := Parse(name)
		if !ok {
			continue
		}
		if c := o.contender(name, n); !c.gone() {
			all = append(all, c)
		}
	}
	sorted := o.sorted(all)
	line = make([]string, len(sorted))
	for i, c := range sorted {
		line[i] = c.name
		if !c.known && (o.late || sharesNumber(sorted, i)) {
			unknown = append(unknown, c.name)
		}
	}
	return line, unknown
}

// sharesNumber reports whether the contender with index i has the same number as the one before or
// behind it in line, which is in order.
func sharesNumber(line []*contender, i int) bool {
	number := line[i].Number
	return i > 0 && line[i-1].Number == number ||
		i+1 < len(line) && line[i+1].Number == number
}

// Family returns those of names that are contenders and may share a directory with one of kind k,
// in no order.
func Family(names []string, k Kind) []string {
	var family []string
	for _, name := range names {
		if n, ok := Parse(name); ok && k.Shares(n.Kind) {
			family = append(family, name)
		}
	}
	return family
}

// Holding returns, for each contender of a line in order of arrival, whether it holds. Each is
// judged as it judges itself. size is a semaphore's size. Inside says which readers may hold as
// well.
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

// Ahead returns how many contenders of line, which is in order, are in own's way, and the first of
// them, or own if there is none. It returns ok = false if own is not in line.
func Ahead(line []string, own string) (ahead int, first string, ok bool) {
	us, _ := Parse(own)
	first = own
	for _, name := range line {
		if name == own {
			return ahead, first, true
		}
		n, _ := Parse(name)
		if !us.Kind.WaitsFor(n.Kind) {
			continue
		}
		if ahead == 0 {
			first = name
		}
		ahead++
	}
	return 0, "", false
}

// order compares contenders by one of the two rules: see "Order of contenders".
type order struct {
	late   bool // by czxid first
	czxids map[string]int64
}

// contender is a contender of a list, with its czxid if that is known.
type contender struct {
	name string
	Name
	czxid int64 // zero if the znode is known to be gone
	known bool  // the czxid is known
}

// gone reports whether the znode is known to have been gone after the list.
func (c *contender) gone() bool { return c.known && c.czxid == 0 }

func (o order) contender(name string, n Name) contender {
	czxid, known := o.czxids[name]
	return contender{name, n, czxid, known}
}

// sorted returns pointers to all in order of arrival. It sorts pointers, because a contender is a
// large struct: sorting those takes longer, and grows the stack of every goroutine that waits.
func (o order) sorted(all []contender) []*contender {
	line := make([]*contender, len(all))
	for i := range all {
		line[i] = &all[i]
	}
	slices.SortFunc(line, o.compare)
	return line
}

// compare compares by number and then by czxid, or by czxid and then by number if the order is
// late. Names come last: so the order in which contenders are listed has no effect.
func (o order) compare(a, b *contender) int {
	byNumber := cmp.Compare(a.Number, b.Number)
	if byNumber != 0 && !o.late {
		return byNumber
	}
	byCzxid := cmp.Compare(a.czxid, b.czxid)
	return cmp.Or(byCzxid, byNumber, cmp.Compare(a.name, b.name))
}
