package zklock

import "github.com/zklock/locker/recipe"

// LocalQueues returns how many local queues a client has.
func LocalQueues(c *Client) int {
	return c.handoff.Len()
}

// HeardGone tells h that its znode was deleted.
func HeardGone(h *Hold) { h.a.lose(recipe.ErrGone) }
