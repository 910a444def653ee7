package zktest

import "strings"

// Reads never leave the member that the client is connected to, and their replies carry the zxid of the last
// transaction that this member has applied, not of the node. A watch is set in the same step as the read: nothing can
// happen in between that the client would not hear of.

// readOp carries out an operation that changes no znode, on the connection's own member. It returns what writes the
// body of the reply, nil for none. The server's lock is held.
func (c *conn) readOp(r *request) (body func(*encoder), code Code) {
	m := c.member
	if r.op == OpPing { // whatever its body
		return nil, CodeOK
	}
	if r.err != nil {
		return nil, CodeMarshallingError
	}
	if r.noPath {
		return withoutPath(r, c.s.opt.version)
	}
	switch r.op {
	case OpSync: // of the whole tree; the path is only echoed
		m.catchUp(0)
		return func(e *encoder) { e.str(r.path) }, CodeOK
	case OpExists:
		return c.exists(r)
	case OpGetData, OpGetChildren, OpGetChildren2, OpGetACL, OpGetAllChildrenNumber:
		return c.readNode(r)
	case OpMultiRead:
		return c.multiRead(r)
	case OpSetWatches, OpSetWatches2:
		m.setWatches(c, r)
		return nil, CodeOK
	case OpAddWatch:
		if r.flags != 0 && r.flags != 1 {
			return nil, CodeMarshallingError
		}
		// Neither the node nor the path's form matters, and both tables get it, though nothing that fires in the one
		// for children reaches a recursive watch: removeWatches and checkWatches can tell.
		m.addWatch(c, r.path, watchPersistent<<r.flags)
		return func(e *encoder) { e.int32(0) }, CodeOK
	case OpRemoveWatches, OpCheckWatches:
		return nil, c.findWatches(r)
	case OpGetEphemerals:
		return c.getEphemerals(r), CodeOK
	case OpWhoAmI:
		return func(e *encoder) {
			e.int32(int32(len(c.ids)))
			for _, id := range c.ids {
				user := id.id // of a digest only the name is for other eyes
				if id.scheme == "digest" {
					user, _, _ = strings.Cut(user, ":")
				}
				e.str(id.scheme)
				e.str(user)
			}
		}, CodeOK
	}
	return nil, CodeMarshallingError
}

// withoutPath answers what names null as its path. Only those whose handler never looks at it get through.
func withoutPath(r *request, v Version) (func(*encoder), Code) {
	switch r.op {
	case OpSync:
		return func(e *encoder) { e.buffer(nil) }, CodeOK
	case OpAddWatch:
		return func(e *encoder) { e.int32(0) }, CodeOK
	case OpRemoveWatches:
		return nil, CodeNoWatcher
	case OpCheckWatches:
		if v != Version38 {
			return nil, CodeNoWatcher
		}
	}
	return nil, CodeMarshallingError
}

// exists sets its watch whether or not the node is there: that is how a client waits for one.
func (c *conn) exists(r *request) (func(*encoder), Code) {
	if strings.Contains(r.path, "\x00") {
		return nil, CodeBadArguments
	}
	n := c.member.tree.nodes[r.path]
	if n != nil && c.s.opt.version != Version38 && !allowed(n.acl, PermRead, c.ids) {
		return nil, CodeNoAuth
	}
	if r.watch {
		c.member.dataWatches.add(c, r.path, watchOnce)
	}
	if n == nil {
		return nil, CodeNoNode
	}
	st := n.stat()
	return func(e *encoder) { e.stat(&st) }, CodeOK
}

// readNode serves the operations that want a node that is there and that the client may read.
func (c *conn) readNode(r *request) (func(*encoder), Code) {
	m := c.member
	n := m.tree.nodes[r.path]
	if n == nil {
		return nil, CodeNoNode
	}
	// To see an ACL, being allowed to change it is as good as being allowed to read the node.
	perm := PermRead
	if r.op == OpGetACL {
		perm |= PermAdmin
	}
	if !allowed(n.acl, perm, c.ids) {
		return nil, CodeNoAuth
	}
	st := n.stat()
	switch r.op {
	case OpGetData:
		if r.watch {
			m.dataWatches.add(c, r.path, watchOnce)
		}
		data := n.data
		return func(e *encoder) { e.buffer(data); e.stat(&st) }, CodeOK
	case OpGetACL:
		acl := n.acl
		if !allowed(acl, PermAdmin, c.ids) {
			acl = masked(acl)
		}
		return func(e *encoder) { e.acls(acl); e.stat(&st) }, CodeOK
	case OpGetAllChildrenNumber:
		return func(e *encoder) { e.int32(m.tree.below(r.path)) }, CodeOK
	}
	// Copied now: the reply is written later, but within the same hold of the lock.
	if r.watch {
		m.childWatches.add(c, r.path, watchOnce)
	}
	children := n.list()
	return func(e *encoder) {
		e.strs(children)
		if r.op == OpGetChildren2 {
			e.stat(&st)
		}
	}, CodeOK
}

// multiRead answers each part for itself; one that fails does not touch the others. A part that the handler cannot
// take ends it with an error, and the real server sends along what it has by then.
func (c *conn) multiRead(r *request) (func(*encoder), Code) {
	var results encoder
	code := CodeOK
	for i := range r.parts {
		part := r.parts[i]
		if part.noPath || part.op != OpGetChildren && part.op != OpGetData {
			code = CodeMarshallingError
			break
		}
		part.watch = false
		body, failed := c.readNode(&part)
		if failed != CodeOK {
			multiHeader(&results, opError, false, failed)
			results.int32(int32(failed))
			continue
		}
		multiHeader(&results, part.op, false, CodeOK)
		body(&results)
	}
	multiHeader(&results, opError, true, -1)
	return func(e *encoder) { e.b = append(e.b, results.b...) }, code
}

// findWatches serves checkWatches, and removeWatches, which also takes them away. The kinds 4 and 5, and an eye for
// persistent watches apart from plain ones, are 3.9's.
func (c *conn) findWatches(r *request) Code {
	m := c.member
	tables, modes := []*watchTable{m.childWatches, m.dataWatches}, watchOnce
	switch kind := r.flags; {
	case kind == 1:
		tables = tables[:1]
	case kind == 2:
		tables = tables[1:]
	case kind == 3:
		modes = watchOnce | watchPersistent | watchRecursive
	case kind == 4 && c.s.opt.version != Version38:
		modes = watchPersistent
	case kind == 5 && c.s.opt.version != Version38:
		modes = watchRecursive
	default:
		return CodeMarshallingError
	}
	// Both tables are asked in any case: removing stops at no half.
	found := false
	for _, w := range tables {
		if r.op == OpCheckWatches {
			found = w.contains(c, r.path, modes) || found
		} else {
			found = w.remove(c, r.path, modes) || found
		}
	}
	if !found {
		return CodeNoWatcher
	}
	return CodeOK
}

// getEphemerals lists the session's own ephemerals under a prefix, which is one of letters, not of path components.
func (c *conn) getEphemerals(r *request) func(*encoder) {
	prefix := ""
	if r.prefix != nil && strings.TrimSpace(*r.prefix) != "/" && strings.TrimSpace(*r.prefix) != "" {
		prefix = *r.prefix
	}
	var found []string
	for _, p := range c.member.tree.owned(c.session) {
		if strings.HasPrefix(p, prefix) {
			found = append(found, p)
		}
	}
	return func(e *encoder) { e.strs(found) }
}
