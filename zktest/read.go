package zktest

import (
	"strings"

	"github.com/zklock/locker/zktest/fault"
)

// Reads are served by the member that the client is connected to, and their replies carry the zxid
// of the last transaction that this member has applied, not of the node. A watch is set in the same
// step as the read, so the client misses no change in between.

// body writes the body of a reply. A nil body writes none.
type body = func(*encoder)

// reads returns the serve function of an operation that changes no znode. read returns the reply's
// body and code.
func reads(read func(c *conn, r *request) (body, fault.Code)) func(*conn, *request) answer {
	return func(c *conn, r *request) answer {
		if r.err != nil || r.noPath && !r.takesNull {
			return c.result(fault.CodeMarshallingError, nil)
		}
		b, code := read(c, r)
		return c.result(code, b)
	}
}

// readsNode returns the serve function of an operation that reads one znode. read is called if the
// znode exists and the client may read it, and returns the reply's body.
func readsNode(read func(c *conn, r *request, n *node) body) func(*conn, *request) answer {
	return reads(func(c *conn, r *request) (body, fault.Code) {
		n, code := c.reach(r)
		if code != fault.CodeOK {
			return nil, code
		}
		return read(c, r, n), fault.CodeOK
	})
}

// reach returns the node of a read. The code is CodeNoNode if there is none, and CodeNoAuth, with
// the node, if the client has no permission on it.
func (c *conn) reach(r *request) (*node, fault.Code) {
	n := c.member.tree.nodes[r.path]
	switch {
	case n == nil:
		return nil, fault.CodeNoNode
	case !allowed(n.acl, r.perm, c.ids):
		return n, fault.CodeNoAuth
	}
	return n, fault.CodeOK
}

// getData answers with a node's data and stat.
func (c *conn) getData(r *request, n *node) body {
	if r.watch {
		c.member.dataWatches.add(c, r.path, watchOnce)
	}
	data, st := n.data, n.stat()
	return func(e *encoder) { e.buffer(data); e.stat(&st) }
}

// getChildren answers with the names of a node's children. It serves getChildren2 as well, which
// adds the stat.
func (c *conn) getChildren(r *request, n *node) body {
	if r.watch {
		c.member.childWatches.add(c, r.path, watchOnce)
	}
	children, st := n.list(), n.stat()
	return func(e *encoder) {
		e.strs(children)
		if r.op == fault.OpGetChildren2 {
			e.stat(&st)
		}
	}
}

// getACL answers with a node's list and stat. A client that may not administer the node does not
// see the digests.
func (c *conn) getACL(_ *request, n *node) body {
	acl, st := n.acl, n.stat()
	if !allowed(acl, PermAdmin, c.ids) {
		acl = masked(acl)
	}
	return func(e *encoder) { e.acls(acl); e.stat(&st) }
}

// getAllChildrenNumber answers with the number of a node's descendants.
func (c *conn) getAllChildrenNumber(r *request, _ *node) body {
	n := c.member.tree.below(r.path)
	return func(e *encoder) { e.int32(n) }
}

// exists answers with a node's stat. It sets its watch whether or not the node exists: that is how
// a client waits for one. Whether it needs a permission depends on the version.
func (c *conn) exists(r *request) (body, fault.Code) {
	if strings.Contains(r.path, "\x00") {
		return nil, fault.CodeBadArguments
	}
	n, code := c.reach(r)
	if code == fault.CodeNoAuth && c.s.opt.dialect.existsNeedsRead {
		return nil, code
	}
	if r.watch {
		c.member.dataWatches.add(c, r.path, watchOnce)
	}
	if code == fault.CodeNoNode {
		return nil, code
	}
	st := n.stat()
	return func(e *encoder) { e.stat(&st) }, fault.CodeOK
}

// multiRead answers each part by itself: a part that fails does not affect the others, and no part
// sets a watch. A part that can't be read ends it with a marshalling error, and as on a real server
// the results up to there are sent along.
func (c *conn) multiRead(r *request) (body, fault.Code) {
	var results encoder
	code := fault.CodeOK
	for i := range r.parts {
		part := r.parts[i]
		if part.noPath || part.part != partOfMultiRead {
			code = fault.CodeMarshallingError
			break
		}
		part.watch = false
		a := part.serve(c, &part)
		if a.code == fault.CodeOK {
			encodePartHeader(&results, part.op, fault.CodeOK)
			a.body(&results)
		} else {
			encodeFailedPart(&results, a.code)
		}
	}
	encodeEndOfParts(&results)
	return func(e *encoder) { e.b = append(e.b, results.b...) }, code
}

// watcherType is what the client of checkWatches and removeWatches asks for.
type watcherType int32

const (
	watcherChildren watcherType = 1 + iota // any watch in the table of children
	watcherData                            // any watch in the table of data watches
	watcherAny
	watcherPersistent // since 3.9
	watcherRecursive  // since 3.9
)

// watchFilter selects watches: those in the tables that have any of the modes.
type watchFilter struct {
	tables []*watchTable
	modes  watchMode
}

// filter returns the watches that a watcherType stands for. ok is false if the server's version
// does not know the type.
func (m *Member) filter(t watcherType) (f watchFilter, ok bool) {
	both := []*watchTable{m.childWatches, m.dataWatches}
	switch t {
	case watcherChildren:
		return watchFilter{both[:1], watchOnce}, true
	case watcherData:
		return watchFilter{both[1:], watchOnce}, true
	case watcherAny:
		return watchFilter{both, watchOnce | watchPersistent | watchRecursive}, true
	}
	if m.s.opt.dialect.oneModePerWatch {
		return watchFilter{}, false
	}
	switch t {
	case watcherPersistent:
		return watchFilter{both, watchPersistent}, true
	case watcherRecursive:
		return watchFilter{both, watchRecursive}, true
	}
	return watchFilter{}, false
}

// checkWatches answers whether the connection has a watch of a type on a path.
func (c *conn) checkWatches(r *request) (body, fault.Code) {
	if r.noPath && c.s.opt.dialect.oneModePerWatch {
		return nil, fault.CodeMarshallingError
	}
	return c.findWatches(r, (*watchTable).contains)
}

// removeWatches removes the connection's watches of a type from a path.
func (c *conn) removeWatches(r *request) (body, fault.Code) {
	return c.findWatches(r, (*watchTable).remove)
}

// findWatches answers checkWatches and removeWatches. It calls find for each table that the
// request's type selects, and answers "no watcher" unless one of the calls returns true.
func (c *conn) findWatches(
	r *request, find func(w *watchTable, c *conn, path string, modes watchMode) bool,
) (body, fault.Code) {
	if r.noPath {
		return nil, fault.CodeNoWatcher
	}
	filter, ok := c.member.filter(watcherType(r.flags))
	if !ok {
		return nil, fault.CodeMarshallingError
	}
	code := fault.CodeNoWatcher
	for _, w := range filter.tables { // all of them: a removal does not stop at the first
		if find(w, c, r.path, filter.modes) {
			code = fault.CodeOK
		}
	}
	return nil, code
}

// addWatchMode is the kind of watch that the client of addWatch asks for.
type addWatchMode int32

const (
	addPersistent addWatchMode = iota
	addRecursive
)

// addWatch sets a persistent or recursive watch. It checks neither that the node exists nor the
// path's form. A null path is answered alike, and gets no watch.
func (c *conn) addWatch(r *request) (body, fault.Code) {
	done := func(e *encoder) { e.int32(0) }
	if r.noPath {
		return done, fault.CodeOK
	}
	switch addWatchMode(r.flags) {
	case addPersistent:
		c.member.addWatchLocked(c, r.path, watchPersistent)
	case addRecursive:
		c.member.addWatchLocked(c, r.path, watchRecursive)
	default:
		return nil, fault.CodeMarshallingError
	}
	return done, fault.CodeOK
}

// setWatches restores a reconnected client's watches. It serves setWatches2 as well, which has more
// lists.
func (c *conn) setWatches(r *request) (body, fault.Code) {
	c.member.setWatchesLocked(c, r)
	return nil, fault.CodeOK
}

// getEphemerals returns the session's own ephemerals whose paths begin with a prefix, which need
// not end between two components. A null, blank or "/" prefix selects all.
func (c *conn) getEphemerals(r *request) (body, fault.Code) {
	prefix := ""
	if r.prefix != nil {
		prefix = *r.prefix
	}
	if all := strings.TrimSpace(prefix); all == "" || all == "/" {
		prefix = ""
	}
	var found []string
	for _, p := range c.member.tree.owned(c.session) {
		if strings.HasPrefix(p, prefix) {
			found = append(found, p)
		}
	}
	return func(e *encoder) { e.strs(found) }, fault.CodeOK
}

// ping answers a client's sign of life, which the server has noted already.
func (c *conn) ping(*request) (body, fault.Code) { return nil, fault.CodeOK }

// sync brings the member up to date with the leader, in the whole tree. The reply echoes the path.
func (c *conn) sync(r *request) (body, fault.Code) {
	c.member.catchUpLocked(0)
	return func(e *encoder) {
		if r.noPath {
			e.buffer(nil)
		} else {
			e.str(r.path)
		}
	}, fault.CodeOK
}

// whoAmI answers with the connection's identities. It shows only the user of a digest.
func (c *conn) whoAmI(*request) (body, fault.Code) {
	return func(e *encoder) {
		e.int32(int32(len(c.ids)))
		for _, id := range c.ids {
			user := id.id
			if id.scheme == schemeDigest {
				user, _, _ = strings.Cut(user, ":")
			}
			e.str(id.scheme)
			e.str(user)
		}
	}, fault.CodeOK
}
