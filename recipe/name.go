package recipe

import (
	"math"
	"strconv"
	"strings"
)

// A contender's znode is named _c_<uuid>-<label><number>, as by Apache Curator. The id comes first:
// after a lost reply, the znode is found by it. Then comes what the contender wants, and then the
// number that the server gave it:
//
//	_c_<uuid>-lock-0000000012         a mutex's contender
//	_c_<uuid>-rank-7-lock-0000000012  a candidate of an election, of rank 7
//	_c_<uuid>-rank-7-9-lock-00000000… one that was the ninth to enter, and has stepped aside since
//	_c_<uuid>-__WRIT__0000000012      a writer
//	_c_<uuid>-__READ__0000000012      a reader
//	_c_<uuid>-lease-3-0000000012      a semaphore's contender for three permits
//
// Names of other clients are understood: only the label and the number behind it count.

// Name is a contender as its znode's name shows it.
type Name struct {
	Kind    Kind
	Number  int32 // the server's, unless the name is made up: see order.go
	Permits int   // of a semaphore's contender
	Rank    int   // of an election's candidate: see rank.go
	Since   int   // of a candidate that has stepped aside: its first Arrival, no time; otherwise 0
}

// Label returns what this library's name for n has between the id and the number. n.Kind must not
// be None.
func (n Name) Label() string {
	label := "-" + n.Kind.facts().labels[0]
	switch {
	case n.Kind.Sized():
		return label + strconv.Itoa(n.Permits) + "-"
	case n.Since > 0:
		return "-" + rankLabel + strconv.Itoa(n.Rank) + "-" + strconv.Itoa(n.Since) + label
	case n.Rank > 0:
		return "-" + rankLabel + strconv.Itoa(n.Rank) + label
	}
	return label
}

// Parse reads a contender's name. It returns false for any other name, which this library ignores.
// The number has 32 bits and exactly the form that servers write, "%010d": ten digits, or a sign
// and nine or ten.
func Parse(name string) (n Name, ok bool) {
	ok = n.read(name)
	return n, ok
}

// read is Parse into n, which is the zero Name. Each of a thousand waiters reads a thousand names,
// and half of the time was spent on copies of a Name.
func (n *Name) read(name string) bool {
	i := beforeDigits(name)
	// The last character of "lock-" may also be a sign, so the name is read without a sign first.
	if n.readAt(name, i) {
		return true
	}
	return i > 0 && name[i-1] == '-' && n.readAt(name, i-1)
}

// readAt reads a contender's name whose number begins at the index i.
func (n *Name) readAt(name string, i int) bool {
	number, ok := numberOf(name[i:])
	if !ok || !n.readLabel(name[:i]) {
		return false
	}
	n.Number = number
	return true
}

// readLabel reads the kind, and the permits or the rank, from the end of text, which stands before
// a name's number. It returns false if text does not end with a kind's label.
func (n *Name) readLabel(text string) bool {
	for k := range numKinds {
		for _, label := range kinds[k].labels {
			if kinds[k].sized {
				before, permits := cutNumber(text, MaxPermits)
				if permits > 0 && strings.HasSuffix(before, "-"+label) {
					n.Kind, n.Permits = k, permits
					return true
				}
			} else if before, ok := strings.CutSuffix(text, label); ok {
				n.Kind = k
				n.Rank, n.Since = rankOf(before)
				return true
			}
		}
	}
	return false
}

// beforeDigits returns the length of text without the digits at its end.
func beforeDigits(text string) int {
	i := len(text)
	for i > 0 && '0' <= text[i-1] && text[i-1] <= '9' {
		i--
	}
	return i
}

// cutNumber cuts a number from 1 to most, and a hyphen behind it, off the end of text. It returns
// text and zero if there is none.
func cutNumber(text string, most int) (before string, n int) {
	rest, ok := strings.CutSuffix(text, "-")
	before = rest[:beforeDigits(rest)]
	n, err := strconv.Atoi(rest[len(before):])
	if !ok || err != nil || n > most {
		return text, 0
	}
	return before, n
}

// numberOf reads a number of 32 bits as "%010d" writes it. text has digits only, or a minus sign
// and digits.
func numberOf(text string) (int32, bool) {
	if len(text) < 10 || len(text) > 11 {
		return 0, false
	}
	digits, negative := strings.CutPrefix(text, "-")
	var v int64 // at most eleven digits do not overflow it
	for i := range len(digits) {
		v = 10*v + int64(digits[i]-'0')
	}
	switch {
	case !negative:
		return int32(v), len(text) == 10 && v <= math.MaxInt32
	case len(text) == 11: // only for a number of ten digits
		return int32(-v), digits[0] != '0' && v <= -math.MinInt32
	}
	return int32(-v), v != 0 // a server never writes minus zero
}
