package session

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// When a session ends, its leader writes one transaction that lists the paths of all its ephemeral znodes. Since 3.6.0 a server
// refuses to read one that is longer than jute.maxbuffer and its extra (1 MB each by default), from its leader as well as from
// its own log: followers fall out of the ensemble and can't start again. So a session refuses a create that has no room.
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

// change is what a request does to the session's ephemerals when it is carried out. A znode that a transaction both makes
// and deletes is none.
type change struct {
	kind changeKind
	path string // as the caller named it
	op   int    // its number within a multi
}

type changeKind uint8

const (
	makes         changeKind = iota // an ephemeral znode
	makesNumbered                   // an ephemeral, sequential one
	deletes
)

func changeOf(path string, mode Mode, op int) []change {
	switch mode {
	case Ephemeral:
		return []change{{makes, path, op}}
	case EphemeralSequential:
		return []change{{makesNumbered, path, op}}
	}
	return nil
}

// ephemerals counts the session's ephemeral znodes.
type ephemerals struct {
	limit  int
	chroot int // its length

	mu      sync.Mutex // guards what follows; a leaf: nothing else is locked under it
	bytes   int        // of all that stand, are on their way, or may have been made
	made    map[string]int64
	doubt   map[change]int // creates whose outcome is unknown; op is 0
	empty   time.Time      // since when bytes is 0
	retired bool           // takes no more
}

func newEphemerals(limit, chroot int) *ephemerals {
	return &ephemerals{limit: limit, chroot: chroot, made: map[string]int64{}, doubt: map[change]int{}, empty: time.Now()}
}

// size is the room that the znode of a change takes, at most.
func (e *ephemerals) size(r change) int {
	n := e.chroot + len(r.path) + lengthBytes
	if r.kind == makesNumbered {
		n += numberBytes
	}
	return n
}

// reserve takes the room that a request may need; an error says that there is not enough. A transaction that also deletes
// ephemerals of this session needs only what it adds. One that replaces some, by others with longer names, may exceed the
// limit by an eighth: a full session must still be able to downgrade a lock.
func (e *ephemerals) reserve(r *request) error {
	if len(r.changes) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	gross, net, more := 0, 0, 0
	for _, ch := range r.changes {
		if ch.kind != deletes {
			gross, net, more = gross+e.size(ch), net+e.size(ch), more+1
		} else if _, ok := e.made[ch.path]; ok {
			net, more = net-e.size(ch), more-1
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
	for _, ch := range r.changes {
		if r.doubted && ch.kind != deletes {
			e.clearLocked(change{kind: ch.kind, path: ch.path}, 1)
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
	for _, ch := range r.changes {
		if ch.kind != deletes {
			e.doubt[change{kind: ch.kind, path: ch.path}]++
		}
	}
}

func (e *ephemerals) addLocked(path string, czxid int64) {
	if _, known := e.made[path]; !known {
		e.bytes += e.size(change{path: path})
	}
	e.made[path] = czxid
}

// clearLocked forgets at most n creates whose outcome was unknown.
func (e *ephemerals) clearLocked(ch change, n int) {
	n = min(n, e.doubt[ch])
	if e.doubt[ch] -= n; e.doubt[ch] == 0 {
		delete(e.doubt, ch)
	}
	e.freeLocked(n * e.size(ch))
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
		e.freeLocked(e.size(change{path: path}))
	}
	if written {
		e.clearLocked(change{kind: makes, path: path}, math.MaxInt)
	}
}

// unanswered is called when the caller of r gives up without having learned from a reply whether r was carried out.
func (e *ephemerals) unanswered(r *request) {
	if r.reserved == 0 {
		return
	}
	sent := r.mayBeSent()
	e.mu.Lock()
	defer e.mu.Unlock()
	if sent {
		e.doubtLocked(r)
	} else {
		e.releaseLocked(r)
	}
}

// answered learns from a reply. A create's success is counted when its path has been decoded: see record.
func (e *ephemerals) answered(r *request) {
	switch {
	case r.op == opDelete && (r.header.code == codeOK || r.header.code == codeNoNode):
		e.gone(r.path, r.header.zxid, true)
	case r.header.code == codeNoNode && r.op != opMulti:
		e.gone(r.path, r.header.zxid, false)
	}
}

// record counts the outcome of a request that has been answered, and whose answer came to err: path returns the path of the
// znode that a change has made.
func (e *ephemerals) record(r *request, err error, path func(change) string) {
	if len(r.changes) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && (errors.Is(err, ErrUnknownOutcome) || !definite(r.header.code)) {
		e.doubtLocked(r)
		return
	}
	for _, ch := range r.changes {
		switch {
		case err != nil:
		case ch.kind == deletes:
			e.goneLocked(ch.path, r.header.zxid, true)
		default:
			e.addLocked(path(ch), r.header.zxid)
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
	e.clearLocked(change{kind: makesNumbered, path: path}, math.MaxInt)
}

func (f forLocks) Gone(path string) { f.s.ephemerals.gone(path, math.MaxInt64, true) }
