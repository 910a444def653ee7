package session

import (
	"encoding/binary"
	"runtime"
	"strings"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// AnswerAsTheSessionEnds has the reader take the reply to the first request, and the session end, by the reply or else by
// another cause, before the call has the reply. The call has woken by then, and has returned or waits for the reader.
func (r *Rig) AnswerAsTheSessionEnds(code int32, returned func() bool) {
	end := r.end
	r.end = func(cause error) { // waits when the context is over
		end(cause)
		r.until(func() bool { return returned() || abandons() })
	}
	if code != wire.CodeSessionExpired {
		r.c.pending.head.hook = func(int32) { r.end(failure.ErrExpired) }
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(r.c.pending.head.xid))
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, 99), uint32(code))
	if _, err := r.c.handle(b, len(b), r.clock.Stamp()); err != nil {
		r.c.fail(err)
	}
}

// abandons reports whether a goroutine of the process is giving up requests.
func abandons() bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "session.(*conn).abandon(")
}

// End ends the session.
func (r *Rig) End(cause error) { r.end(cause) }
