package recipe

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

// A contender's znode is named _c_<uuid>-<kind>-<number>, as Apache Curator names it: the id first, so that it can be
// found again after a lost reply, then what it wants, then the number that the server gave it:
//
//	_c_<uuid>-lock-0000000012         a mutex's contender
//	_c_<uuid>-__WRIT__0000000012      a writer
//	_c_<uuid>-__READ__0000000012      a reader
//	_c_<uuid>-lease-3-0000000012      a semaphore's contender for three permits
//
// Other clients' names for the same things are understood: what counts is the mark and the number behind it.

// newID returns a fresh id for one znode: "_c_" and a random UUID (version 4, lower case).
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var out [39]byte
	copy(out[:], "_c_")
	u := out[3:]
	hex.Encode(u[0:8], b[0:4])
	hex.Encode(u[9:13], b[4:6])
	hex.Encode(u[14:18], b[6:8])
	hex.Encode(u[19:23], b[8:10])
	hex.Encode(u[24:36], b[10:16])
	u[8], u[13], u[18], u[23] = '-', '-', '-', '-'
	return string(out[:])
}

// Name is a contender as its znode's name shows it.
type Name struct {
	Kind    Kind
	Number  int32 // the server's; see before
	Permits int   // of a semaphore's contender
}

// marks tells a contender's kind by what stands before its number. "lock-" and "__lock__" are mutexes of Curator,
// go-zookeeper and Kazoo; "__rlock__" is Kazoo's reader.
var marks = []struct {
	text string
	kind Kind
}{{"lock-", Lock}, {"__lock__", Lock}, {"__READ__", Read}, {"__WRIT__", Write}, {"__rlock__", Read}}

// Parse reads a contender's name; false for any other name, which no lock of ours has to do with. The number has ten
// digits, or a sign and nine or ten for a counter that has run over, and fits 32 bits.
func Parse(name string) (Name, bool) {
	i := len(name)
	for i > 0 && isDigit(name[i-1]) {
		i--
	}
	if n := len(name) - i; n < 9 || n > 10 {
		return Name{}, false
	}
	// "lock-" ends with what may also be a sign; so the marks are tried first without one, then with.
	for _, sign := range []int{0, 1} {
		if sign > i || sign == 1 && name[i-1] != '-' {
			continue
		}
		head := name[:i-sign]
		v, err := strconv.ParseInt(name[i-sign:], 10, 32)
		if err != nil {
			continue // out of range, but −2147483648 is not
		}
		for _, m := range marks {
			if strings.HasSuffix(head, m.text) {
				return Name{Kind: m.kind, Number: int32(v)}, true
			}
		}
		if n, ok := permitsOf(head); ok {
			return Name{Kind: Permits, Number: int32(v), Permits: n}, true
		}
	}
	return Name{}, false
}

// permitsOf reads "…-lease-3-".
func permitsOf(head string) (int, bool) {
	head, ok := strings.CutSuffix(head, "-")
	if !ok {
		return 0, false
	}
	i := len(head)
	for i > 0 && isDigit(head[i-1]) {
		i--
	}
	n, err := strconv.Atoi(head[i:])
	return n, err == nil && n > 0 && n <= MaxPermits && strings.HasSuffix(head[:i], "-lease-")
}

// MaxPermits bounds the size of a semaphore, so that sums of permits can't overflow.
const MaxPermits = 1 << 30

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
