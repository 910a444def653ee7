package pipeline

import (
	"hash/maphash"

	"github.com/zklock/locker/internal/session/internal/wire"
)

// Other clients determine how long the reply to a list or a read is: a hundred thousand contenders,
// names of 1 MB each, data. A burst of calls on such a lock would ask for many such replies at
// once, and the next heartbeat's reply would come behind all of them. So a connection has
//
//   - one list or read in flight whose last reply was longer than longReply;
//   - one list or read in flight of each path that has not been read on this connection.

// longReply is the length, in bytes, from which a reply is long.
const longReply = 16 << 10

// replySizes is the length of the latest reply to each list or read, or replyDue. It remembers
// sizesKept paths.
type replySizes map[replyKey]int

const (
	sizesKept = 4096
	replyDue  = -1 // the first reply has not come
)

// replyKey is an operation and a path. The path is a hash, since other clients determine how long
// it is; two paths with one hash only wait for each other.
type replyKey struct {
	op   int32
	path uint64
}

var pathSeed = maphash.MakeSeed()

// keyOf returns the key of r, or false if its reply is always short.
func keyOf(r *Request) (key replyKey, ok bool) {
	if !wire.LongReply(r.Op) {
		return replyKey{}, false
	}
	return replyKey{r.Op, maphash.String(pathSeed, r.Path)}, true
}

// mustWait reports whether r, which is about to be written, has to wait for the reply to a list or
// read in flight. longDue says that a long reply is due.
func (s replySizes) mustWait(r *Request, longDue bool) bool {
	key, _ := keyOf(r) // the zero key is never in s
	size, known := s[key]
	return known && (size == replyDue || size > longReply && longDue)
}

// expect notes that r is about to be written.
func (s replySizes) expect(r *Request) {
	key, ok := keyOf(r)
	size, known := s[key]
	r.long = size > longReply
	if known || !ok {
		return
	}
	if len(s) >= sizesKept {
		clear(s)
	}
	s[key] = replyDue
}

// answered notes that the reply to r has come. After the reply to a multiRead, each of its lists
// counts as never read until its own part of the reply is known: see Pipeline.Learn.
func (s replySizes) answered(r *Request, size int) {
	if key, ok := keyOf(r); ok {
		s[key] = size
	}
	for _, m := range r.members {
		key, _ := keyOf(m)
		delete(s, key)
	}
}
