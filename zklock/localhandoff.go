package zklock

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/zklock/internal/handoff"
)

// WithLocalHandoff lets the goroutines of this process that lock one Mutex, through one Client,
// share one znode: a released hold is passed to the next call that waits, in order of arrival,
// without a request. TryLock is busy while another call of the process holds or wants it.
//
// A process hands on for a tenth of a second after another process has begun to wait or, if one
// waited from the first, after it got the lock. Then its calls go to the end. Locks share a znode
// if they agree in path, WithOwner, WithACL and WithContainer.
//
// Holds that follow each other on one znode have the same token.
func WithLocalHandoff() LockOption {
	return LockOption{func(o *lockOptions) error { o.localHandoff = true; return nil }}
}

// localQueues are of a Client's goroutines that share a place in line.
type localQueues struct{ handoff.Queues }

// localEntrance returns the entrance through the local queue. The queue's key has the path and all
// options that the znode depends on.
func (l lock) localEntrance() (entrance, error) {
	if !l.kind.hasLocalHandoff {
		return nil,
			fmt.Errorf("%w: WithLocalHandoff is for a mutex; this is a %s", ErrInvalid, l.kind.noun)
	}
	rest := fmt.Appendf(nil, "%t %#v\n%s", l.o.container, l.o.acl, l.place.Data)
	shared := &handoff.Config{
		Key:         handoff.Key{Path: l.path, Rest: sha256.Sum256(rest)},
		Self:        contender.Describe(l.place.Data),
		Context:     l.c.ctx,
		Go:          l.c.spawn,
		Logger:      l.c.log,
		Unreachable: l.c.unreachable,
		Acquire: func(ctx context.Context, try bool, c queue.Caller) (*queue.Ticket, error) {
			return l.obtain(ctx, LockInfo{Kind: KindMutex, Try: try}, c)
		},
		GiveUp: func(ctx context.Context, t *queue.Ticket) { l.c.giveUp(ctx, t) },
	}
	return func(ctx context.Context, w *waiting) (ticket, error) {
		if w.info.Try {
			return l.c.local.TryLock(ctx, shared, w)
		}
		return l.c.local.Lock(ctx, shared, w)
	}, nil
}
