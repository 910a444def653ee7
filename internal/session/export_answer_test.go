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
		r.c.seam().First().Hook = func(int32) { r.end(failure.ErrExpired) }
	}
	_, _, xid := r.c.seam().Waiting()
	b := binary.BigEndian.AppendUint32(nil, uint32(xid))
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, 99), uint32(code))
	if err := r.c.seam().Handle(b, len(b), r.clock.Stamp()); err != nil {
		r.c.Fail(err)
	}
}

// abandons reports whether a goroutine of the process is giving up requests.
func abandons() bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "link.(*Conn).abandon(")
}

// End ends the session.
func (r *Rig) End(cause error) { r.end(cause) }
