package recipe

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// Whoever may write a contender's znode can ask it to let go, by setting its data: Curator's Revoker does, and
// zklock.Client.Ask. The watch on the own znode, which every hold that lasts has for its deletion, tells of that too; so
// to listen costs nothing until somebody asks, and then one read.

// OnSet has fn called with the data of one of the ticket's znodes, and its Stat, when they are not those that the ticket has
// set itself: as soon as Guard has found that out, also if it was before the ticket held. fn runs in a goroutine of the
// session's, and two calls may come in either order: Mzxid says which data are the later ones. Call it before Guard.
func (t *Ticket) OnSet(fn func(data []byte, stat zk.Stat)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set = fn
}

// heed reads the data of node if its version is not one that is known.
func (t *Ticket) heed(ctx context.Context, node string, version int32) {
	fn := t.unheard(node, version)
	if fn == nil {
		return
	}
	data, stat, err := t.s.Get(ctx, node)
	if err != nil {
		return // it is gone, or may not be read by us: then nobody can ask
	}
	if t.known(node, stat.Version) { // else another call has read them, or later ones
		fn(data, stat)
	}
}

// unheard returns who is to be told of the data of node if its version is not one that is known; else nil.
func (t *Ticket) unheard(node string, version int32) func([]byte, zk.Stat) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.life == left
	for _, e := range t.entries {
		known = known || e.node == node && version <= e.version
	}
	if known {
		return nil
	}
	return t.set
}

// heedEarlier heeds what was set before the ticket held.
func (t *Ticket) heedEarlier(ctx context.Context) {
	for _, node := range t.Nodes() {
		if stat, err := t.s.Exists(ctx, node); err == nil {
			t.heed(ctx, node, stat.Version)
		}
	}
}

// known notes a version of a znode's data that nobody needs to be told of from now on. It reports whether it is news.
func (t *Ticket) known(node string, version int32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if e.node == node && e.version < version {
			e.version = version
			return true
		}
	}
	return false
}
