package recipe

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/zklock/locker/internal/text"
)

// Kind is what a contender wants. It determines which contenders are in its way.
type Kind int

const (
	None    Kind = iota // of a name that is no contender's
	Lock                // a mutex's contender, or a candidate of an election: every contender before it is in its way
	Read                // a reader of a read/write lock: writers before it are in its way
	Write               // a writer of a read/write lock: readers and writers before it are in its way
	Permits             // a semaphore's contender: the permits of those before it count

	kinds // how many there are
)

var words = [kinds]struct{ kind, label string }{
	None:    {"nothing", ""},
	Lock:    {"mutex", "-lock-"},
	Read:    {"read lock", "-__READ__"},
	Write:   {"write lock", "-__WRIT__"},
	Permits: {"semaphore", "-lease-"},
}

// String returns the kind in words.
func (k Kind) String() string {
	if k < 0 || k >= kinds {
		k = None
	}
	return words[k].kind
}

// label is the text between the id and the number in the names that we make.
func (k Kind) label() string { return words[k].label }

// blocks reports whether a contender of kind ahead is in the way of one of kind k behind it.
func (k Kind) blocks(ahead Kind) bool { return k.Shares(ahead) && (k != Read || ahead != Read) }

// Shares reports whether contenders of the two kinds may share one directory.
func (k Kind) Shares(other Kind) bool {
	rw := func(k Kind) bool { return k == Read || k == Write }
	return k == other || rw(k) && rw(other)
}

// alone reports whether a holder of kind k holds alone: no contender may be before it.
func (k Kind) alone() bool { return k == Lock || k == Write }

// wayOnlyShrinks reports whether contenders in the way of one of kind k can only disappear: it then holds without another
// list once the last has gone. In a writer's way new ones may appear: a Curator client gives the reader inside its own write
// lock the writer's number.
func (k Kind) wayOnlyShrinks() bool { return k != Write }

// A contender's znode is named _c_<uuid>-<kind>-<number>, as by Apache Curator: the id first, by which the znode is found
// again after a lost reply, then what it wants, then the number that the server gave it:
//
//	_c_<uuid>-lock-0000000012         a mutex's contender
//	_c_<uuid>-__WRIT__0000000012      a writer
//	_c_<uuid>-__READ__0000000012      a reader
//	_c_<uuid>-lease-3-0000000012      a semaphore's contender for three permits
//
// Names of other clients are understood: only the label and the number behind it count.

const (
	idLength = 39
	digits   = "0123456789"
)

// newID returns a fresh id for one znode: "_c_" and a random UUID (version 4, lower case).
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	u := hex.EncodeToString(b[:])
	return "_c_" + u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:]
}

// Name is a contender as its znode's name shows it.
type Name struct {
	Kind    Kind
	Number  int32 // the server's, unless the name is made up: see order.go
	Permits int   // of a semaphore's contender
}

// labels maps the text before the number to the contender's kind. "lock-" and "__lock__" are mutexes of Curator,
// go-zookeeper and Kazoo; "__rlock__" is Kazoo's reader.
var labels = []struct {
	text string
	kind Kind
}{{"lock-", Lock}, {"__lock__", Lock}, {"__READ__", Read}, {"__WRIT__", Write}, {"__rlock__", Read}}

// Parse reads a contender's name; false for any other name, which this library ignores. The number has 32 bits and exactly
// the form that servers write, "%010d": ten digits, or a sign and nine or ten.
func Parse(name string) (Name, bool) {
	i := len(strings.TrimRight(name, digits))
	// The last character of "lock-" may also be a sign: the labels are tried first without a sign, then with one.
	for sign := range 2 {
		if sign > i || sign == 1 && name[i-1] != '-' {
			continue
		}
		number, ok := numberOf(name[i-sign:])
		if !ok {
			continue
		}
		before := name[:i-sign]
		for _, m := range labels {
			if strings.HasSuffix(before, m.text) {
				return Name{Kind: m.kind, Number: number}, true
			}
		}
		if n, ok := permitsOf(before); ok {
			return Name{Kind: Permits, Number: number, Permits: n}, true
		}
	}
	return Name{}, false
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

// permitsOf reads "…-lease-3-".
func permitsOf(text string) (int, bool) {
	text, ok := strings.CutSuffix(text, "-")
	label := strings.TrimRight(text, digits)
	n, err := strconv.Atoi(text[len(label):])
	return n, ok && err == nil && n > 0 && n <= MaxPermits && strings.HasSuffix(label, Permits.label())
}

// MaxPermits bounds the size of a semaphore, so that sums of permits can't overflow.
const MaxPermits = 1 << 30

// kept returns a name as it is stored and shown. Long ones, which only neighbours make, are cut, since a thousand waiters
// would store a thousand copies. Cut names of one length and beginning count as the same; their data are not read.
func kept(name string) string {
	if len(name) <= 16<<10 {
		return strings.Clone(name)
	}
	return fmt.Sprintf("%s (%d bytes)", text.Foreign(name), len(name))
}
