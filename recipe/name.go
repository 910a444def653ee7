package recipe

import (
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
func Parse(name string) (Name, bool) {
	i := beforeDigits(name)
	// The last character of "lock-" may also be a sign, so the name is read without a sign first.
	if n, ok := parseAt(name, i); ok {
		return n, true
	}
	if i > 0 && name[i-1] == '-' {
		return parseAt(name, i-1)
	}
	return Name{}, false
}

// parseAt reads a contender's name whose number begins at the index i.
func parseAt(name string, i int) (Name, bool) {
	number, ok := numberOf(name[i:])
	if !ok {
		return Name{}, false
	}
	n := labelled(name[:i])
	if n.Kind == None {
		return Name{}, false
	}
	n.Number = number
	return n, true
}

// labelled reads the kind, and the permits or the rank, from the end of text, which stands before a
// name's number. It returns the zero Name if text does not end with a kind's label.
func labelled(text string) Name {
	for k := range numKinds {
		for _, label := range kinds[k].labels {
			if kinds[k].sized {
				before, permits := cutNumber(text, MaxPermits)
				if permits > 0 && strings.HasSuffix(before, "-"+label) {
					return Name{Kind: k, Permits: permits}
				}
			} else if before, ok := strings.CutSuffix(text, label); ok {
				rank, since := rankOf(before)
				return Name{Kind: k, Rank: rank, Since: since}
			}
		}
	}
	return Name{}
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

// numberOf reads a number of 32 bits as "%010d" writes it.
func numberOf(text string) (int32, bool) {
	if len(text) < 10 || len(text) > 11 {
		return 0, false
	}
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, false
	}
	if len(text) == 11 { // only for a negative number of ten digits
		return int32(v), text[0] == '-' && text[1] != '0'
	}
	negative := text[0] == '-'
	return int32(v), negative == (v < 0) // a server never writes minus zero
}
