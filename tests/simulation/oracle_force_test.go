package simulation_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// expire ends a session by force.
func (o *oracle) expire(s zktest.Session) {
	o.w.expired.Store(true)
	o.mu.Lock()
	o.expired[s.ID] = true
	for _, node := range s.Ephemerals {
		o.forced[node] = true
	}
	o.mu.Unlock()
	if err := o.w.srv.Expire(s.ID); err != nil && !errors.Is(err, fault.CodeUnknownSession) {
		o.w.violated("expire: %v", err)
	}
}

// noteForced notes that a znode is removed by force, or may be from now on.
func (o *oracle) noteForced(node string) {
	o.mu.Lock()
	o.forced[node] = true
	o.mu.Unlock()
}

// remove deletes one contender of a directory, usually the first in line.
func (o *oracle) remove(dir string, rnd *rand.Rand) {
	names, _ := recipe.Listing{Names: o.w.srv.Children(dir)}.Line(nil)
	if len(names) == 0 {
		return
	}
	name := names[0]
	if rnd.IntN(3) == 0 {
		name = names[rnd.IntN(len(names))]
	}
	o.w.note("fault", "%s/%s is deleted", dir, short(name))
	o.noteForced(dir + "/" + name)
	node, _ := o.w.srv.Node(dir + "/" + name)
	switch err := o.w.srv.Delete(dir + "/" + name); {
	case err == nil:
		o.removed(dir, name, node.Stat.Czxid)
	case !errors.Is(err, fault.CodeNoNode):
		o.w.violated("delete: %v", err)
	}
}

// removed notes a contender that can't have held when it was removed: another one in its way still
// exists. (For a semaphore that depends on the size.)
func (o *oracle) removed(dir, name string, czxid int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	me, _ := recipe.Parse(name)
	for _, other := range o.w.srv.Children(dir) {
		n, ok := recipe.Parse(other)
		node, exists := o.w.srv.Node(dir + "/" + other)
		isBefore := exists && node.Stat.Czxid < czxid // numbers need not show the order
		if ok && isBefore && me.Kind != recipe.Permits &&
			(me.Kind != recipe.Read || n.Kind != recipe.Read) {
			o.waited[dir+"/"+name] = czxid
			return
		}
	}
}

// removeAll deletes a lock's directory and everything in it.
func (o *oracle) removeAll(dir string) {
	o.w.note("fault", "%s is deleted with everything in it", dir)
	names := o.w.srv.Children(dir)
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(short(a), short(b)) })
	for _, name := range names {
		o.noteForced(dir + "/" + name)
		_ = o.w.srv.Delete(dir + "/" + name) // it may be gone already
	}
	_ = o.w.srv.Delete(dir) // fails if a call has entered meanwhile
}

// standing is an acquisition, with the znodes that it had when it was looked up.
type standing struct {
	*acquisition
	nodes []string
}

// certain returns the acquisitions of a path that certainly hold now.
func (o *oracle) certain(p string) []standing {
	o.mu.Lock()
	defer o.mu.Unlock()
	var sure []standing
	for _, t := range o.held {
		if i := slices.Index(t.paths, p); i >= 0 && t.live() && !o.forced[t.nodes[i]] &&
			!o.expired[t.session] {
			sure = append(sure, standing{t, t.nodes})
		}
	}
	return sure
}

// still returns those of before that still certainly hold, with the same znodes.
func (o *oracle) still(p string, before []standing) []standing {
	now := o.certain(p)
	return slices.DeleteFunc(before, func(s standing) bool {
		return !slices.ContainsFunc(now, func(n standing) bool {
			return n.acquisition == s.acquisition && slices.Equal(n.nodes, s.nodes)
		})
	})
}
