package recipe

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Downgrade turns a writer that holds into a reader that holds, at the same place in line: in one transaction a
// reader's znode with the writer's number is made and the writer's is deleted, so that no writer can get between, and
// the readers behind come in.
//
// Nil: the returned ticket holds, and this one is over. ErrGone: the writer's znode was not there. Any other error: ctx
// or the session ended first, or the ensemble refused; then this ticket still holds, unless the error matches
// session.ErrUnknownOutcome, after which its Leave gives up whichever of the two there is.
func (t *Ticket) Downgrade(ctx context.Context) (*Ticket, error) {
	q := t.q
	q.Kind = Read
	r := q.ticket(t.s)
	r.id = fmt.Sprintf("%s-0x%x%s", newID(), t.czxid, Read.mark()) // so that its place in line can be told: see order.go
	base := path.Base(t.node)
	r.node = q.Dir + "/" + r.id + base[len(t.id):]
	r.czxid = t.czxid // the reader keeps the token: a writer that queued meanwhile has a smaller one than its own would be
	for {
		ops := []any{
			&zk.CreateRequest{Path: r.node, Data: q.Data, Acl: q.ACL, Flags: int32(session.Ephemeral)},
			&zk.DeleteRequest{Path: t.node, Version: -1},
		}
		if r.delayed = t.delayed; t.delayed { // the claim goes over to the reader
			state, stat, err := q.state(ctx, t.s)
			if err != nil {
				return nil, err
			}
			state.Claims[path.Base(r.node)] = state.Claims[base]
			delete(state.Claims, base)
			ops = append(ops, &zk.SetDataRequest{Path: q.Dir, Data: state.encode(), Version: stat.Version})
		}
		_, err := t.s.Transact(ctx, ops...)
		switch {
		case err == nil:
			t.unwatch()
			return r, nil
		case errors.Is(err, zk.ErrBadVersion): // somebody else's claim came between
		case errors.Is(err, session.ErrUnknownOutcome), errors.Is(err, zk.ErrNodeExists):
			// It exists: an attempt whose reply was lost was carried out after we had looked for it, and not found it.
			stat, lookErr := t.s.ExistsNow(ctx, r.node)
			switch {
			case lookErr == nil && stat.EphemeralOwner == t.s.ID():
				t.unwatch()
				return r, nil
			case lookErr == nil: // of somebody else, who has guessed a random name
				return nil, err
			case !errors.Is(lookErr, zk.ErrNoNode):
				t.twin = r
				return nil, fmt.Errorf("%w (%w)", err, session.ErrUnknownOutcome)
			}
		case errors.Is(err, zk.ErrNoNode):
			return nil, ErrGone
		default:
			return nil, err
		}
	}
}
