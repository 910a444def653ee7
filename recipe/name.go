package recipe

import (
	"strconv"
	"strings"
)

// A contender's znode is named _c_<uuid>-<kind>-<number>, as by Apache Curator: the id first, by which the znode is found
// again after a lost reply, then what it wants, then the number that the server gave it:
//
//	_c_<uuid>-lock-0000000012         a mutex's contender
//	_c_<uuid>-__WRIT__0000000012      a writer
//	_c_<uuid>-__READ__0000000012      a reader
//	_c_<uuid>-lease-3-0000000012      a semaphore's contender for three permits
//
// Names of other clients are understood: only the label and the number behind it count.

const digits = "0123456789"

// Name is a contender as its znode's name shows it.
type Name struct {
	Kind    Kind
	Number  int32 // the server's, unless the name is made up: see order.go
	Permits int   // of a semaphore's contender
}

// Label returns what the names that this library makes have between the id and the number. k is not None.
func (k Kind) Label(permits int) string {
	label := "-" + k.facts().labels[0]
	if k.Sized() {
		label += strconv.Itoa(permits) + "-"
	}
	return label
}

// Parse reads a contender's name; false for any other name, which this library ignores. The number has 32 bits and exactly
// the form that servers write, "%010d": ten digits, or a sign and nine or ten.
func Parse(name string) (Name, bool) {
	i := len(strings.TrimRight(name, digits))
	// The last character of "lock-" may also be a sign: the labels are tried first without a sign, then with one.
	for sign := range 2 {
		if sign > i || sign == 1 && name[i-1] != '-' {
			continue
		}
		if number, ok := numberOf(name[i-sign:]); ok {
			if n := labelled(name[:i-sign]); n.Kind != None {
				n.Number = number
				return n, true
			}
		}
	}
	return Name{}, false
}

// labelled reads the kind and the permits from the end of text, which stands before a name's number.
func labelled(text string) Name {
	wanting, permits, counted := cutPermits(text)
	for k := range numKinds {
		for _, label := range kinds[k].labels {
			switch {
			case !kinds[k].sized && strings.HasSuffix(text, label):
				return Name{Kind: k}
			case kinds[k].sized && counted && strings.HasSuffix(wanting, "-"+label):
				return Name{Kind: k, Permits: permits}
			}
		}
	}
	return Name{}
}

// numberOf reads a number of 32 bits as "%010d" writes it.
func numberOf(text string) (int32, bool) {
	if len(text) < 10 || len(text) > 11 {
		return 0, false
	}
	v, err := strconv.ParseInt(text, 10, 32)
	negative := text[0] == '-'
	return int32(v), err == nil && negative == (v < 0) && (len(text) == 10 || negative && text[1] != '0')
}
