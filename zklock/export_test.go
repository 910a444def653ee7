package zklock

import (
	"github.com/zklock/locker/internal/queue"
)

// LocalQueues returns how many local queues a client has.
func LocalQueues(c *Client) int {
	return c.handoff.Len()
}

// WithHandoffs is WithLocalHandoff with another bound of the hand-overs while another process waits.
func WithHandoffs(n int) LockOption {
	return LockOption{func(o *lockOptions) error { o.handoff = n; return nil }}
}

// HeardGone notifies h that its znode was deleted.
func HeardGone(h *Hold) { h.a.endLost(queue.ErrGone) }
