package zktest

import (
	"strings"

	"github.com/zklock/locker/zktest/fault"
)

// Reads are served by the member that the client is connected to, and their replies carry the zxid
// of the last transaction that this member has applied, not of the node. A watch is set in the same
// step as the read, so the client misses no change in between.

// body writes the body of a reply; nil stands for none.
type body = func(*encoder)

// reads makes a serve function of one that changes no znode.
func reads(read func(c *conn, r *request) (body, fault.Code)) func(*conn, *request) answer {
	return func(c *conn, r *request) answer {
		if r.err != nil || r.noPath && !r.takesNull {
			return c.result(fault.CodeMarshallingError, nil)
		}
		b, code := read(c, r)
		return c.result(code, b)
	}
}

// readsNode makes a serve function of one that reads a znode, with a check of the client's
// permission.
func readsNode(read func(c *conn, r *request, n *node) body) func(*conn, *request) answer {
	return reads(func(c *conn, r *request) (body, fault.Code) {
		n, code := c.reach(r)
		if code != fault.CodeOK {
			return nil, code
		}
		return read(c, r, n), fault.CodeOK
	})
}

// reach returns the node of a read and checks the permission on it.
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

func (c *conn) getData(r *request, n *node) body {
	if r.watch {
		c.member.dataWatches.add(c, r.path, watchOnce)
	}
	data, st := n.data, n.stat()
	return func(e *encoder) { e.buffer(data); e.stat(&st) }
}

// getChildren serves getChildren2 as well, which adds the stat.
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

func (c *conn) getACL(_ *request, n *node) body {
	acl, st := n.acl, n.stat()
	if !allowed(acl, PermAdmin, c.ids) {
		acl = masked(acl)
	}
	return func(e *encoder) { e.acls(acl); e.stat(&st) }
}

func (c *conn) getAllChildrenNumber(r *request, _ *node) body {
	n := c.member.tree.below(r.path)
	return func(e *encoder) { e.int32(n) }
}

// exists sets its watch whether or not the node exists: that is how a client waits for one.
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

// multiRead answers each part by itself; a failed part does not affect the others. A part that the
// handler cannot take ends it with an error, and the real server sends the results up to there
// along.
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
		if a.code != fault.CodeOK {
			encodePartHeader(&results, opError, false, a.code)
			results.int32(int32(a.code))
			continue
		}
		encodePartHeader(&results, part.op, false, fault.CodeOK)
		a.body(&results)
	}
	encodePartHeader(&results, opError, true, -1)
	return func(e *encoder) { e.b = append(e.b, results.b...) }, code
}

// findWatches serves checkWatches, and removeWatches, which also takes them away.
func (c *conn) findWatches(r *request) (body, fault.Code) {
	m, old := c.member, c.s.opt.dialect.oneModePerWatch
	if r.noPath {
		if old && r.op == fault.OpCheckWatches {
			return nil, fault.CodeMarshallingError
		}
		return nil, fault.CodeNoWatcher
	}
	tables, modes := []*watchTable{m.childWatches, m.dataWatches}, watchOnce
	switch kind := r.flags; {
	case kind == 1:
		tables = tables[:1]
	case kind == 2:
		tables = tables[1:]
	case kind == 3:
		modes = watchOnce | watchPersistent | watchRecursive
	case kind == 4 && !old:
		modes = watchPersistent
	case kind == 5 && !old:
		modes = watchRecursive
	default:
		return nil, fault.CodeMarshallingError
	}
	// Both tables are asked in any case: a removal does not stop at the first.
	found := false
	for _, w := range tables {
		if r.op == fault.OpCheckWatches {
			found = w.contains(c, r.path, modes) || found
		} else {
			found = w.remove(c, r.path, modes) || found
		}
	}
	if !found {
		return nil, fault.CodeNoWatcher
	}
	return nil, fault.CodeOK
}

// addWatch checks neither the node nor the path's form, and a null path adds none.
func (c *conn) addWatch(r *request) (body, fault.Code) {
	if !r.noPath {
		if r.flags != 0 && r.flags != 1 {
			return nil, fault.CodeMarshallingError
		}
		c.member.addWatchLocked(c, r.path, watchPersistent<<r.flags)
	}
	return func(e *encoder) { e.int32(0) }, fault.CodeOK
}

// setWatches serves setWatches2 as well, which has more lists.
func (c *conn) setWatches(r *request) (body, fault.Code) {
	c.member.setWatchesLocked(c, r)
	return nil, fault.CodeOK
}

// getEphemerals lists the session's own ephemerals under a prefix of the string, not of path
// components.
func (c *conn) getEphemerals(r *request) (body, fault.Code) {
	prefix := ""
	if r.prefix != nil && strings.TrimSpace(*r.prefix) != "/" &&
		strings.TrimSpace(*r.prefix) != "" {
		prefix = *r.prefix
	}
	var found []string
	for _, p := range c.member.tree.owned(c.session) {
		if strings.HasPrefix(p, prefix) {
			found = append(found, p)
		}
	}
	return func(e *encoder) { e.strs(found) }, fault.CodeOK
}

func (c *conn) ping(*request) (body, fault.Code) { return nil, fault.CodeOK }

// sync brings the member up to date with the leader, for the whole tree; the path is only echoed.
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

func (c *conn) whoAmI(*request) (body, fault.Code) {
	return func(e *encoder) {
		e.int32(int32(len(c.ids)))
		for _, id := range c.ids {
			user := id.id // other clients see only the name of a digest
			if id.scheme == schemeDigest {
				user, _, _ = strings.Cut(user, ":")
			}
			e.str(id.scheme)
			e.str(user)
		}
	}, fault.CodeOK
}
