package zklock

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/zklock/locker/internal/handoff"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// newHandoff returns the client's local queues.
func (c *Client) newHandoff() *handoff.Queues {
	return handoff.New(handoff.Config{
		Context:     c.ctx,
		Closed:      closedError{},
		Go:          c.spawn,
		Logger:      c.log,
		GiveUp:      func(ctx context.Context, t *recipe.Ticket) { c.giveUp(ctx, t) },
		Unreachable: c.unreachable,
	})
}

// unreachable returns why there is no connection, once ctx has ended; nil when there is one.
func (c *Client) unreachable(ctx context.Context, path string) error {
	s := c.sessions.current()
	if s.State() == session.Connected {
		return nil
	}
	if _, err := c.Session(ctx); err != nil {
		return err
	}
	return s.Sync(ctx, path)
}

// handoffLock describes a mutex with local handoff. Calls share a local queue if they agree in the path and in what the
// znode, and the time for which it exists, depend on.
func (l *lock) handoffLock() *handoff.Lock {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %t %t %t %d\n", l.o.handoff, l.o.keep, l.o.container, l.o.verifyACL, l.o.delaySet, l.o.delay)
	for _, a := range l.o.acl {
		fmt.Fprintf(h, "%d %q %q\n", a.Perms, a.Scheme, a.ID)
	}
	h.Write(l.data)
	shared := &handoff.Lock{Key: handoff.Key{Path: l.path}, Self: describe(l.data), Handoffs: l.o.handoff, IdleKeep: l.o.keep}
	h.Sum(shared.Key.Rest[:0])
	queuer := *l
	shared.Acquire = func(ctx context.Context, try bool, c handoff.Caller) (*recipe.Ticket, error) {
		return queuer.obtain(ctx, request{try: try, kind: KindMutex}, c)
	}
	return shared
}
