package zklock

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// ticket is the znode, or set of znodes, behind a hold: a *queue.Ticket that holds, or with local
// handoff a *handoff.Turn on one. The contracts are those of queue.Ticket's methods.
type ticket interface {
	Session() *session.Session
	Nodes() []string
	Czxid() int64
	Guard(lost func(error)) // reports a loss, from now on
	// nil, or a deletion was reported, and is explained when this is closed
	Deleted() <-chan struct{}
	Check(ctx context.Context) error // asks whether it is still ours
	SetData(context.Context, []byte) error
	Multi(ctx context.Context, mayWrite func() error, ops ...session.Op) ([]zk.MultiResponse, error)
	// the hold has ended otherwise than by its release: no other call gets the ticket
	Lose(cause error)
	Leave(ctx context.Context) error
}
