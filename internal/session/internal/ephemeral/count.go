package ephemeral

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// When a session ends, its leader writes one transaction that lists the paths of all its ephemeral
// znodes. A server refuses to read one longer than jute.maxbuffer and its extra (1 MB each by
// default), from its leader as from its own log: followers fall out of the ensemble and can't start
// again. So a session refuses a create that has no room.
//
// The count is never less than what exists at the ensemble. Room is reserved before a create is
// sent, and given back only when the ensemble has refused the create, or has said that the znode is
// gone: in the answer to a delete, in a NoNode younger than the create (by zxid), or by a watch. A
// create whose reply was lost keeps its room until its outcome is known (Found, or a delete of that
// path). A znode that another client deleted without our being notified counts until its path is
// used again or the session ends: the session then refuses too early, not too late.

// mostRoom bounds the paths of a session's ephemeral znodes, in bytes: their lengths, with chroot
// and sequence number, and lengthBytes for each. With a small jute.maxbuffer, half of that is the
// bound.
const mostRoom = 512 << 10

const (
	lengthBytes = 4  // of a path's length in the transaction
	numberBytes = 11 // of a sequential znode's longest number, -2147483648
)

// ErrSessionFull matches the error for a create that would bring the paths of the session's
// ephemeral znodes above 512 KB, or half of Config.JuteMaxBuffer if that is less; nothing was sent.
// The error has the figures.
var ErrSessionFull = errors.New("session: the session is full, no room for another ephemeral znode")

// Count counts the room for the znodes of one session.
type Count struct {
	limit  int
	chroot int // its length

	mu    sync.Mutex             // guards what follows; a leaf: nothing else is locked under it
	bytes int                    // of paths that exist, are being made, or may have been made
	made  map[string]int64       // the czxids of those that exist, by path
	doubt map[pipeline.Touch]int // how many creates have an unknown outcome
}

// New returns an empty count. jute is the longest request that the servers accept, and chroot the
// length of the chroot.
func New(jute, chroot int) *Count {
	return &Count{limit: min(mostRoom, jute/2), chroot: chroot, made: map[string]int64{},
		doubt: map[pipeline.Touch]int{}}
}

func (e *Count) size(t pipeline.Touch) int {
	n := e.chroot + len(t.Path) + lengthBytes
	if t.Effect == pipeline.MakesNumbered {
		n += numberBytes
	}
	return n
}

// Any reports whether the session may have an ephemeral znode.
func (e *Count) Any() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bytes > 0
}

// Reserve takes the room that r may need, or returns an error.
func (e *Count) Reserve(r *pipeline.Request) error {
	if len(r.Touches) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	need := 0
	for _, t := range r.Touches {
		if t.Stays() {
			need += e.size(t)
		}
	}
	if need > 0 && e.bytes+need > e.limit {
		return fmt.Errorf(
			"%w: %d bytes are needed and %d of %d are used: the paths of a session's ephemeral znodes must stay far "+
				"below the ensemble's jute.maxbuffer", ErrSessionFull, need, e.bytes, e.limit)
	}
	r.Reserved = need
	e.bytes += need
	return nil
}

// releaseLocked gives back r's reserved room.
func (e *Count) releaseLocked(r *pipeline.Request) {
	e.bytes -= r.Reserved
	r.Reserved = 0
}

// doubtLocked keeps the room of r, which may have been carried out.
func (e *Count) doubtLocked(r *pipeline.Request) {
	if r.Reserved == 0 {
		return
	}
	r.Reserved = 0
	for _, t := range r.Touches {
		if t.Stays() {
			e.doubt[t]++
		}
	}
}

// addLocked records that path was made, by the transaction czxid.
func (e *Count) addLocked(path string, czxid int64) {
	if _, known := e.made[path]; !known {
		e.bytes += e.size(pipeline.Touch{Path: path})
	}
	e.made[path] = czxid
}

// clearLocked gives back the room of at most n creates whose outcome was unknown.
func (e *Count) clearLocked(t pipeline.Touch, n int) {
	n = min(n, e.doubt[t])
	e.doubt[t] -= n
	if e.doubt[t] == 0 {
		delete(e.doubt, t)
	}
	e.bytes -= n * e.size(t)
}

// Gone records that path did not exist at zxid. With math.MaxInt64 it records that path is gone
// now, according to a frame that the conn's reader handles in order.
//
// written says that this is the leader's answer to a write. So it came after all creates that were
// sent before, and those whose outcome was unknown have left no znode.
func (e *Count) Gone(path string, zxid int64, written bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.goneLocked(path, zxid, written)
}

func (e *Count) goneLocked(path string, zxid int64, written bool) {
	if czxid, ok := e.made[path]; ok && czxid <= zxid {
		delete(e.made, path)
		e.bytes -= e.size(pipeline.Touch{Path: path})
	}
	if written {
		e.clearLocked(pipeline.Touch{Path: path, Effect: pipeline.Makes}, math.MaxInt)
	}
}

// Unanswered is called when r's caller gives up without a reply that says whether r was carried
// out.
func (e *Count) Unanswered(r *pipeline.Request) {
	if r.Reserved == 0 {
		return
	}
	unknown := r.MayBeDone()
	e.mu.Lock()
	defer e.mu.Unlock()
	if unknown {
		e.doubtLocked(r)
	} else {
		e.releaseLocked(r)
	}
}

// Answered updates the count from the reply to r. err is the error of decoding it, or the refusal,
// or nil. made returns the path that operation i has made.
func (e *Count) Answered(r *pipeline.Request, err error, made func(i int) string) {
	if r.Header.Code == wire.CodeNoNode && r.Op != wire.OpMulti {
		e.Gone(r.Path, r.Header.Zxid, r.Op == wire.OpDelete)
	}
	if len(r.Touches) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if errors.Is(err, failure.ErrUnknownOutcome) {
		e.doubtLocked(r)
		return
	}
	for i, t := range r.Touches {
		switch {
		case err != nil:
		case t.Effect == pipeline.Deletes:
			e.goneLocked(t.Path, r.Header.Zxid, true)
		case t.Stays():
			e.addLocked(made(i), r.Header.Zxid)
		}
	}
	e.releaseLocked(r)
}

// Bytes returns how much of the room is used.
func (e *Count) Bytes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bytes
}

// Found records the outcome of creates of path, sequential and ephemeral, that was unknown: made is
// the znode's path and czxid its czxid, or "" when there is none.
func (e *Count) Found(path, made string, czxid int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if made != "" {
		e.addLocked(made, czxid)
	}
	e.clearLocked(pipeline.Touch{Path: path, Effect: pipeline.MakesNumbered}, math.MaxInt)
}
