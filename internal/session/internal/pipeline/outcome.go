package pipeline

import (
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// fate is what became of a request that was put on a connection.
type fate int

const (
	hasReply  fate = iota // a yes or a no
	neverSent             // it had no effect: not sent, or dropped, or refused with its group
	readAgain             // a read without a reply that counts: harmless to send again
	noReply               // a write that may be carried out, or a reply that can't be read
)

// fate returns what became of r. afterResend says that a write in front of r is to be sent again: a
// read has to see that write, so its own reply is too early.
func (r *Request) fate(afterResend bool) fate {
	switch {
	case r.Repeatable && afterResend:
		return readAgain
	case r.err == nil:
		return hasReply
	case errors.Is(r.err, failure.ErrNotSent):
		return neverSent
	case r.Repeatable && r.unreadable == nil:
		return readAgain
	}
	return noReply
}

// SortOut waits for the outcome of requests, which were put on one connection, one after the other.
// It returns those to send again or, as soon as it comes to one that has failed, that one alone:
// then none is to be sent again, and those behind it may not have been completed yet. trouble is an
// answer "try again", or nil if none came.
func SortOut(requests []*Request) (resend []*Request, failed *Request, trouble error) {
	resendsWrite := false
	for i, r := range requests {
		<-r.done // closed already, or soon: a connection that fails completes them one by one
		if err := r.dropTryAgain(); err != nil {
			trouble = err
		}
		r.takeRefusal(requests[i+1:])
		switch r.fate(resendsWrite) {
		case hasReply:
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

// takeRefusal gives r the answer that it would have had alone, if that is known: r is a create that
// was refused together with another, and the list behind it says that there is no such directory.
func (r *Request) takeRefusal(behind []*Request) {
	if r.err != errTogether || r.Op != wire.OpCreate || len(behind) == 0 { //nolint:errorlint // identity
		return
	}
	list := behind[0]
	if <-list.done; list.err != nil || list.Header.Code != wire.CodeNoNode ||
		list.Path != parent(r.Path) {
		return
	}
	r.err, r.Header = nil, list.Header
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
	r.err, r.unreadable, r.Body = nil, nil, ""
	r.Sent, r.long = time.Time{}, false
}
