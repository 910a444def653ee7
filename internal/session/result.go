package session

import (
	"context"

	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Result is the outcome of one request of a Batch; it is set when Do returns.
type Result[T any] struct {
	Value T     // the server's answer; zero if Err is set, except for a Multi
	Err   error // why the request failed

	r *pipeline.Request // nil if it was refused before any I/O, with Err
	// read decodes the reply's body; nil if decode decodes the reply.
	read func(*wire.Decoder) T
	// decode decodes the reply, and counts the ephemeral znodes of which that tells.
	decode func(*Session, *pipeline.Request) (T, error)
	d      wire.Decoder // read's; a field, to save an allocation
}

// newResult returns the Result of a new request, whose frame still lacks its body. A lock makes
// several of them, so both are one allocation.
func newResult[T any](op int32, name, path string) *Result[T] {
	both := &struct {
		result  Result[T]
		request pipeline.Request
	}{}
	both.request.Init(op, name, path)
	both.result.r = &both.request
	return &both.result
}

type answerable interface {
	request() *pipeline.Request
	resolve(s *Session, noReply error) error
}

func (a *Result[T]) request() *pipeline.Request { return a.r }

// resolve decodes the reply, sets Value and Err, and returns Err. If there is no reply, Err is
// noReply. It keeps the count of ephemeral znodes up to date.
func (a *Result[T]) resolve(s *Session, noReply error) error {
	switch {
	case a.r == nil:
	case a.r.HasReply():
		a.Value, a.Err = a.decodeReply(s)
	default:
		a.Err = noReply
		s.ephemerals.Unanswered(a.r)
	}
	return a.Err
}

func (a *Result[T]) decodeReply(s *Session) (v T, err error) {
	if a.read == nil {
		return a.decode(s, a.r)
	}
	err = a.r.Result(&a.d)
	s.ephemerals.Answered(a.r, err, nil)
	if err != nil {
		return v, err
	}
	v = a.read(&a.d)
	if a.d.Err != nil {
		var zero T
		return zero, a.r.Garbled(a.d.Err)
	}
	return v, nil
}

// do runs the requests of asks, and resolves each. It returns the first Err, in the order of asks.
// room is an empty slice, in which it collects the requests.
func (s *Session) do(ctx context.Context, room []*pipeline.Request, asks ...answerable) error {
	requests := room
	for _, a := range asks {
		if r := a.request(); r != nil {
			requests = append(requests, r)
		}
	}
	noReply := s.run(ctx, requests...) // the error of requests without a reply
	var first error
	for _, a := range asks {
		if err := a.resolve(s, noReply); first == nil {
			first = err
		}
	}
	return first
}

// one runs the request of a, and returns its Value and Err.
func one[T any](ctx context.Context, s *Session, a *Result[T]) (T, error) {
	_ = s.do(ctx, nil, a) // a.Err is the same
	return a.Value, a.Err
}

// ask returns the Result of a request for path. body appends what follows the header to a frame,
// and read decodes the reply. If path is bad, there is no request, and Err says so.
func ask[T any](
	s *Session, op int32, name, path string, body func([]byte) []byte, read func(*wire.Decoder) T,
) *Result[T] {
	if err := checkNamed(path); err != nil {
		return &Result[T]{Err: err}
	}
	a := newResult[T](op, name, path)
	a.r.Frame = body(a.r.Frame)
	a.read = read
	return a
}
