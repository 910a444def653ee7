package recipe

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Try returns a ticket that is the first in line, or an error that matches ErrBusy. While somebody else stands in line
// it costs one list and no write. It blocks for a round trip or two, never for another contender.
//
// Errors are those of Enter; nothing is left behind by any.
func (q Queue) Try(ctx context.Context, s *session.Session) (*Ticket, error) {
	names, _, err := s.List(ctx, q.Dir)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	line, err := q.survey(names)
	if err != nil {
		return nil, err
	}
	if line.Ahead > 0 {
		return nil, &busyError{line}
	}
	t, err := q.Enter(ctx, s)
	if err != nil {
		return nil, err
	}
	v, err := t.decide(ctx)
	switch {
	case err == nil && v.Holds():
		return t, nil
	case err == nil && v.Present:
		t.place(v)
		err = &busyError{t.line}
	case err == nil:
		err = ErrGone
	}
	// Somebody entered between the list and the create. Our place must not keep anybody waiting.
	if leaveErr := t.Leave(ctx); leaveErr != nil && !errors.Is(leaveErr, ErrGone) && ctx.Err() != nil {
		return nil, leaveErr
	}
	return nil, err
}

// survey tells who stands in the way of one who would enter now. Of those, it names the one with the lowest number as
// the first; near the counter's end that may be another one.
func (q Queue) survey(names []string) (Line, error) {
	var line Line
	var first rank
	for _, name := range names {
		n, ok := Parse(name)
		switch {
		case !ok:
			continue
		case !q.Kind.shares(n.Kind):
			return line, q.conflict(name)
		case !q.Kind.blocks(n.Kind):
			continue
		}
		if r := (order{}).rank(name, n); line.Ahead == 0 || r.compare(first) < 0 {
			line.Holder, first = q.Dir+"/"+kept(name), r
		}
		line.Ahead++
	}
	return line, nil
}
