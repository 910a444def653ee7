package zklock

import (
	"github.com/zklock/locker/internal/queue"
)

// LocalQueues returns how many local queues a client has.
func LocalQueues(c *Client) int {
	return c.local.Len()
}

// HeardGone notifies h that its znode was deleted.
func HeardGone(h *Hold) { h.a.endLost(queue.ErrGone) }
