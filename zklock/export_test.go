package zklock

import (
	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
)

// LocalQueues returns how many local queues a client has.
func LocalQueues(c *Client) int {
	return c.handoff.Len()
}

// HeardSet notifies h that the data of its znode have been set.
func HeardSet(h *Hold, data string, stat zk.Stat) { h.a.dataSet([]byte(data), stat) }

// HeardGone notifies h that its znode was deleted.
func HeardGone(h *Hold) { h.a.endLost(recipe.ErrGone) }
