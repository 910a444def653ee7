package zklock

import (
	"context"

	"github.com/zklock/locker/internal/queue"
)

// LocalQueues returns how many local queues a client has.
func LocalQueues(c *Client) int {
	return c.local.Len()
}

// HeardGone notifies h that its znode was deleted.
func HeardGone(h *Hold) { h.a.endLost(queue.ErrGone) }

// Expire is what WithMaxHold's timer does to h.
func Expire(h *Hold) { h.a.expire() }

// DelayHolds has each call of m wait for f when its turn has come, before it holds: as does a
// process that is stopped at this moment.
func DelayHolds(m *Mutex, f func()) {
	m.enter = func(ctx context.Context, w *waiting) (ticket, error) {
		t, err := m.obtain(ctx, w.info, w)
		f()
		return t, err
	}
}
