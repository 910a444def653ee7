package link

import (
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// outcome is what became of a request that was put on a conn.
type outcome int

const (
	answered  outcome = iota // it has its reply, a yes or a no
	refused                  // the list behind it has told its refusal (takeRefusal)
	neverSent                // it had no effect: not sent, or dropped, or refused with its group
	readAgain                // a read without a reply that counts: harmless to send again
	noReply                  // a write that may be carried out, or a reply that can't be read
)

// outcome returns what became of r. behind are the requests behind it. afterResend says that a
// write in front of r is to be sent again: a read has to see that write, so its own reply is too
// early.
func (r *Request) outcome(behind []*Request, afterResend bool) outcome {
	switch {
	case r.Repeatable && afterResend:
		return readAgain
	case r.err == nil:
		return answered
	case r.takeRefusal(behind):
		return refused
	case errors.Is(r.err, failure.ErrNotSent):
		return neverSent
	case r.Repeatable && r.unreadable == nil:
		return readAgain
	}
	return noReply
}

// SortOut waits until each of requests, which were put on one conn, has an outcome. It returns those
// to send again, and the first that failed. trouble is an answer "try again", nil if none came.
func SortOut(requests []*Request) (resend []*Request, failed *Request, trouble error) {
	resendsWrite := false
	for i, r := range requests {
		<-r.done // closed already, or soon: a conn that fails does so to its requests one by one
		if err := r.dropTryAgain(); err != nil {
			trouble = err
		}
		switch r.outcome(requests[i+1:], resendsWrite) {
		case answered, refused:
		case neverSent, readAgain:
			resendsWrite = resendsWrite || !r.Repeatable
			r.reset()
			resend = append(resend, r)
		case noReply:
			return nil, r, trouble
		}
	}
	return resend, nil, trouble
}

// dropTryAgain makes an answer "try again" count as no reply, and returns it. It returns nil if r
// has no such answer.
func (r *Request) dropTryAgain() error {
	if r.err != nil || !wire.TryAgain(r.Header.Code) {
		return nil
	}
	answer := failure.Of(r.Header.Code)
	r.err = answer
	if r.Header.Code == wire.CodeThrottled { // the server has dropped it unread
		r.err = fmt.Errorf("%w: %w", failure.ErrNotSent, answer)
	}
	return answer
}

// reset makes r ready to be sent again.
func (r *Request) reset() {
	r.done = make(chan struct{})
	r.err, r.unreadable, r.Reply = nil, nil, nil
	r.Sent, r.long = time.Time{}, false
}
