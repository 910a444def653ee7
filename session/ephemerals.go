package session

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// When a session ends, its leader writes one transaction that lists the paths of all its ephemeral znodes. Since 3.6.0 a
// server refuses to read one that is longer than jute.maxbuffer and its extra (1 MB each by default), from its leader as
// well as from its own log: followers fall out of the ensemble and can't start again. So a session refuses a create that has
// no room.
//
// What is counted is never less than what stands at the ensemble. Room is reserved before a create leaves, and given back
// only when the ensemble has said no, or has said that the znode is gone: in the answer to a delete, in a NoNode that is
// younger than the create (zxids tell), or by a watch. A create whose reply was lost keeps its room until its outcome
// is known (Found; or a delete of that very path). A znode that another client deleted without our being notified is counted
// until its path is used again or the session ends: then the session refuses too early, not too late.

// Limits of Config.EphemeralBytes. The least has room for any single path; the most is beyond any server's buffers.
const (
	defaultEphemeralBytes = 512 << 10
	minEphemeralBytes     = 16 << 10
	maxEphemeralBytes     = 64 << 20

	lengthBytes = 4  // that a path takes in a list beside its own
	numberBytes = 11 // of the longest number of a sequential znode, -2147483648
)

// ErrNoRoom matches the error for a create that would bring the paths of the session's ephemeral znodes above
// Config.EphemeralBytes: nothing was sent. The error is a *RoomError, inside an OpError.
var ErrNoRoom = errors.New("session: no room for another ephemeral znode")

// RoomError is an ErrNoRoom with its figures, in bytes.
type RoomError struct {
	Need  int // for the znodes that were to be made
	Used  int // by those that exist, or may exist
	Limit int // Config.EphemeralBytes
}

// Error names the figures and the rule.
func (e *RoomError) Error() string {
	return fmt.Sprintf("%v: %d bytes are needed and %d of %d are used: the paths of a session's ephemeral znodes must stay "+
		"far below the ensemble's jute.maxbuffer", ErrNoRoom, e.Need, e.Used, e.Limit)
}

// Unwrap returns ErrNoRoom.
func (e *RoomError) Unwrap() error { return ErrNoRoom }

// touch is a znode that an operation of a write is about.
type touch struct {
	path   string // as the caller named it
	effect effect
}

// effect is what an operation does to the session's ephemeral znodes.
type effect uint8

const (
	noEffect      effect = iota
	makes                // an ephemeral one
	makesNumbered        // an ephemeral, sequential one
	makesForNow          // an ephemeral one that the same transaction deletes
	deletes
)

// effect is that of a create.
func (m Mode) effect() effect {
	switch m {
	case Ephemeral:
		return makes
	case EphemeralSequential:
		return makesNumbered
	}
	return noEffect
}

// contender reports whether an ephemeral znode is made.
func (t touch) contender() bool { return t.stays() || t.effect == makesForNow }

// stays reports whether an ephemeral znode is made that is there when the transaction is over.
func (t touch) stays() bool { return t.effect == makes || t.effect == makesNumbered }

// ephemerals counts the session's ephemeral znodes.
type ephemerals struct {
	limit  int
	chroot int // its length

	mu      sync.Mutex // guards what follows; a leaf: nothing else is locked under it
	bytes   int        // of all that stand, are on their way, or may have been made
	made    map[string]int64
	doubt   map[touch]int // creates whose outcome is unknown
	empty   time.Time     // since when bytes is 0
	retired bool          // takes no more
}

func newEphemerals(limit, chroot int) *ephemerals {
	return &ephemerals{limit: limit, chroot: chroot, made: map[string]int64{}, doubt: map[touch]int{}, empty: time.Now()}
}

// size is the room that a znode takes, at most.
func (e *ephemerals) size(t touch) int {
	n := e.chroot + len(t.path) + lengthBytes
	if t.effect == makesNumbered {
		n += numberBytes
	}
	return n
}

// reserve takes the room that a request may need; an error says that there is not enough. A transaction that also deletes
// ephemerals of this session needs only what it adds. One that replaces some, by others with longer names, may exceed the
// limit by an eighth: a full session must still be able to downgrade a lock.
func (e *ephemerals) reserve(r *request) error {
	if len(r.touches) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	gross, net, more := 0, 0, 0
	for _, t := range r.touches {
		if t.stays() {
			gross, net, more = gross+e.size(t), net+e.size(t), more+1
		} else if _, ok := e.made[t.path]; ok && t.effect == deletes {
			net, more = net-e.size(t), more-1
		}
	}
	limit := e.limit
	if more <= 0 {
		limit += limit / 8
	}
	if gross > 0 && (e.retired || net > 0 && e.bytes+net > limit) {
		return &RoomError{Need: net, Used: e.bytes, Limit: limit}
	}
	r.reserved = gross
	e.bytes += gross
	return nil
}

// releaseLocked gives back what was reserved for r, or, when its reply came after all, what was kept since.
func (e *ephemerals) releaseLocked(r *request) {
	for _, t := range r.touches {
		if r.doubted && t.stays() {
			e.clearLocked(t, 1)
		}
	}
	e.freeLocked(r.reserved)
	r.reserved, r.doubted = 0, false
}

func (e *ephemerals) freeLocked(n int) {
	if e.bytes -= n; e.bytes == 0 && n > 0 {
		e.empty = time.Now()
	}
}

// doubtLocked keeps the room of r, which may have been carried out.
func (e *ephemerals) doubtLocked(r *request) {
	if r.reserved == 0 {
		return
	}
	r.reserved, r.doubted = 0, true
	for _, t := range r.touches {
		if t.stays() {
			e.doubt[t]++
		}
	}
}

func (e *ephemerals) addLocked(path string, czxid int64) {
	if _, known := e.made[path]; !known {
		e.bytes += e.size(touch{path: path})
	}
	e.made[path] = czxid
}

// clearLocked forgets at most n creates whose outcome was unknown.
func (e *ephemerals) clearLocked(t touch, n int) {
	n = min(n, e.doubt[t])
	if e.doubt[t] -= n; e.doubt[t] == 0 {
		delete(e.doubt, t)
	}
	e.freeLocked(n * e.size(t))
}

// gone records that path did not exist at zxid; math.MaxInt64: it is gone now, as the conn's reader says in the order of the
// replies. written: the leader said so in answer to a write, and so after everything that was sent before.
func (e *ephemerals) gone(path string, zxid int64, written bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.goneLocked(path, zxid, written)
}

func (e *ephemerals) goneLocked(path string, zxid int64, written bool) {
	if czxid, ok := e.made[path]; ok && czxid <= zxid {
		delete(e.made, path)
		e.freeLocked(e.size(touch{path: path}))
	}
	if written {
		e.clearLocked(touch{path, makes}, math.MaxInt)
	}
}

// unanswered is called when the caller of r gives up without having learned from a reply whether r was carried out.
func (e *ephemerals) unanswered(r *request) {
	if r.reserved == 0 {
		return
	}
	unknown := r.outcomeUnknown()
	e.mu.Lock()
	defer e.mu.Unlock()
	if unknown {
		e.doubtLocked(r)
	} else {
		e.releaseLocked(r)
	}
}

// answered learns from the reply to r, which came to err; made returns the path of the znode that operation i has made.
func (e *ephemerals) answered(r *request, err error, made func(i int) string) {
	if r.header.code == codeNoNode && r.op != opMulti {
		e.gone(r.path, r.header.zxid, r.op == opDelete)
	}
	if len(r.touches) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && (errors.Is(err, ErrUnknownOutcome) || !definite(r.header.code)) {
		e.doubtLocked(r)
		return
	}
	for i, t := range r.touches {
		switch {
		case err != nil:
		case t.effect == deletes:
			e.goneLocked(t.path, r.header.zxid, true)
		case t.stays():
			e.addLocked(made(i), r.header.zxid)
		}
	}
	e.releaseLocked(r)
}

// EphemeralBytes returns what the paths of the session's ephemeral znodes take of Config.EphemeralBytes: of those that
// exist, and of those that may have been made or may still exist.
func (s *Session) EphemeralBytes() int {
	s.ephemerals.mu.Lock()
	defer s.ephemerals.mu.Unlock()
	return s.ephemerals.bytes
}

func (f forLocks) HasRoom(n int) bool {
	e := f.s.ephemerals
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.retired && (e.bytes == 0 || e.bytes+n <= e.limit)
}

func (f forLocks) Retire(unused time.Duration) bool {
	e := f.s.ephemerals
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.retired && e.bytes == 0 && time.Since(e.empty) >= unused {
		e.retired = true
	}
	return e.retired
}

func (f forLocks) Found(path, made string, czxid int64) {
	e := f.s.ephemerals
	e.mu.Lock()
	defer e.mu.Unlock()
	if made != "" {
		e.addLocked(made, czxid)
	}
	e.clearLocked(touch{path, makesNumbered}, math.MaxInt)
}

func (f forLocks) Gone(path string) { f.s.ephemerals.gone(path, math.MaxInt64, true) }
