package zktest

import (
	"fmt"
	"slices"
	"time"

	"github.com/zklock/locker/zktest/fault"
)

// A write happens in two steps, as in ZooKeeper. Preparing checks it against the leader's state and
// turns it into a transaction of mutations that cannot fail; committing applies that transaction to
// each member's replica. A multi prepares its parts one after the other against what the earlier
// parts would leave behind, and commits them together or not at all. A write that fails still is a
// transaction, an empty one, because it takes a zxid.

// mutKind is what a mutation does to the tree.
type mutKind uint8

const (
	mutCreate mutKind = iota
	mutDelete
	mutSetData
	mutSetACL
	mutCheck    // changes nothing; takes a place among the results of a multi
	mutSequence // only from the test itself
)

// mutation is one checked change of one znode. Replicas share it, so it does not change after its
// commit.
type mutation struct {
	kind    mutKind
	op      fault.Op // selects the form of the result
	path    string
	data    []byte
	acl     []ACL
	version int32 // the new one
	creates int32 // mutCreate: the parent's new counter; mutSequence: the node's own
	node    kind
	owner   int64
	ttl     int64
}

// txn is what members apply: all changes under one zxid.
type txn struct {
	zxid  int64
	time  int64 // milliseconds since the epoch
	muts  []mutation
	ended int64 // the session this transaction closes, or 0
}

// record is what preparing needs of one znode: the tree's state with the earlier parts applied.
type record struct {
	gone              bool // an earlier part deletes the znode
	acl               []ACL
	version, aversion int32
	creates           int32
	children          int
	kind              kind
}

// preparer checks the parts of one write. It exists for that write only and changes only its own
// records.
type preparer struct {
	tree    *tree
	session int64
	ids     []identity
	admin   bool // the test itself: no ACL applies
	sasl    bool // sasl is a scheme of access lists
	dialect *dialect
	over    map[string]*record // by path: what differs, or may differ, from the tree

	// overlaps are the server's: creates that overlap, prepared but not applied.
	overlaps map[string]*overlap
}

// record returns the state of a znode, or nil if there is none. The caller may change the record,
// and later parts then see the change.
func (p *preparer) record(path string) *record {
	path = orRoot(path)
	if r, ok := p.over[path]; ok {
		if r.gone {
			return nil
		}
		return r
	}
	n := p.tree.nodes[path]
	if n == nil {
		return nil
	}
	creates := n.creates
	if o := p.overlaps[path]; o != nil && o.going {
		creates = o.creates
	}
	r := &record{acl: n.acl, version: n.version, aversion: n.aversion, creates: creates,
		children: len(n.children), kind: n.kind}
	p.over[path] = r
	return r
}

// may reports whether the node's ACL grants the client any of the permissions in perm.
func (p *preparer) may(r *record, perm int32) bool { return p.admin || allowed(r.acl, perm, p.ids) }

// prepare checks one write and returns the mutation that carries it out. The order of an
// operation's checks decides which of several errors a client sees.
func (p *preparer) prepare(r *request) (mutation, fault.Code) {
	if r.noPath && !r.takesNull {
		return mutation{}, fault.CodeMarshallingError
	}
	return r.operation.prepare(p, r)
}

// setData checks the path's form, that the node exists, the permission, and the version.
func (p *preparer) setData(r *request) (mutation, fault.Code) {
	if !validPath(r.path) {
		return mutation{}, fault.CodeBadArguments
	}
	n := p.record(r.path)
	if code := p.reach(n, r); code != fault.CodeOK {
		return mutation{}, code
	}
	n.version = next(n.version) // in the record: a later part of the same multi sees it
	return mutation{kind: mutSetData, op: r.op, path: r.path, data: r.data, version: n.version},
		fault.CodeOK
}

// setACL checks the path's form, the new list, that the node exists, the permission, and the
// version of the old list. A node has a version for its list and one for its data.
func (p *preparer) setACL(r *request) (mutation, fault.Code) {
	if !validPath(r.path) {
		return mutation{}, fault.CodeBadArguments
	}
	acl, code := p.fixACL(r)
	if code != fault.CodeOK {
		return mutation{}, code
	}
	n := p.record(r.path)
	switch {
	case n == nil:
		return mutation{}, fault.CodeNoNode
	case !p.may(n, r.perm):
		return mutation{}, fault.CodeNoAuth
	case !r.acceptsVersion(n.aversion):
		return mutation{}, fault.CodeBadVersion
	}
	n.acl, n.aversion = acl, next(n.aversion)
	return mutation{kind: mutSetACL, op: r.op, path: r.path, acl: acl, version: n.aversion},
		fault.CodeOK
}

// check is setData without the write.
func (p *preparer) check(r *request) (mutation, fault.Code) {
	if !validPath(r.path) {
		return mutation{}, fault.CodeBadArguments
	}
	if code := p.reach(p.record(r.path), r); code != fault.CodeOK {
		return mutation{}, code
	}
	return mutation{kind: mutCheck, op: r.op, path: r.path}, fault.CodeOK
}

// reconfig refuses every request: there is nothing to configure.
func (p *preparer) reconfig(*request) (mutation, fault.Code) {
	return mutation{}, fault.CodeReconfigDisabled
}

// fixACL returns the list that the node of a create or setACL gets: see the function fixACL. It
// refuses lists of a form that only the wire can carry.
func (p *preparer) fixACL(r *request) ([]ACL, fault.Code) {
	if r.nullACL {
		return nil, fault.CodeMarshallingError
	}
	return fixACL(r.acl, p.ids, p.sasl)
}

// reach checks that the node exists and has the version that the request names, and that the client
// has the permission.
func (p *preparer) reach(n *record, r *request) fault.Code {
	switch {
	case n == nil:
		return fault.CodeNoNode
	case !p.may(n, r.perm):
		return fault.CodeNoAuth
	case !r.acceptsVersion(n.version):
		return fault.CodeBadVersion
	}
	return fault.CodeOK
}

// anyVersion is the version that a request names to accept every one. No other number is special.
const anyVersion = -1

// acceptsVersion reports whether a request may change a node of this version.
func (r *request) acceptsVersion(v int32) bool {
	return r.version == anyVersion || r.version == v
}

// next returns the version after v. As on a 3.8 server it may become -1, and then no client can
// name it.
func next(v int32) int32 { return v + 1 }

// createMode is what the flags of a create say about the znode.
type createMode int32

const (
	modePersistent createMode = iota
	modeEphemeral
	modeSequential
	modeEphemeralSequential
	modeContainer
	modeTTL
	modeTTLSequential
)

// mode returns the mode of a create, which need not exist.
func (r *request) mode() createMode { return createMode(r.flags) }

func (m createMode) exists() bool      { return m >= modePersistent && m <= modeTTLSequential }
func (m createMode) isEphemeral() bool { return m == modeEphemeral || m == modeEphemeralSequential }
func (m createMode) hasTTL() bool      { return m == modeTTL || m == modeTTLSequential }

func (m createMode) isSequential() bool {
	return m == modeSequential || m == modeEphemeralSequential || m == modeTTLSequential
}

const maxTTL = 1<<40 - 1 // milliseconds; five bytes of the owner field hold it

// create checks, in this order: the mode, the path's form, the ACL, that the parent exists, the
// permission on it, the name with its number, that the name is free, and that the parent is no
// ephemeral.
func (p *preparer) create(r *request) (mutation, fault.Code) {
	if !r.hasValidMode() {
		return mutation{}, fault.CodeBadArguments
	}
	parentPath, ok := parentOf(r.path)
	if !ok {
		return mutation{}, fault.CodeBadArguments
	}
	acl, code := p.fixACL(r)
	if code != fault.CodeOK {
		return mutation{}, code
	}
	parent := p.record(parentPath)
	switch {
	case parent == nil:
		return mutation{}, fault.CodeNoNode
	case !p.may(parent, r.perm):
		return mutation{}, fault.CodeNoAuth
	}
	path := r.path
	if r.mode().isSequential() {
		path += sequence(parent.creates)
	}
	switch {
	case !validPath(path):
		return mutation{}, fault.CodeBadArguments
	case p.record(path) != nil:
		return mutation{}, fault.CodeNodeExists
	case parent.kind == ephemeral:
		return mutation{}, fault.CodeNoChildrenForEphemerals
	}
	m := mutation{kind: mutCreate, op: r.op, path: path, data: r.data, acl: acl,
		creates: parent.creates + 1, node: r.kindOfNode()}
	switch m.node {
	case ephemeral:
		m.owner = p.session
	case ttlNode:
		m.ttl = r.ttl
	}
	// Here the counter wraps, as an int32 does: after 2147483647 the next part of the same multi
	// gets -2147483648. The tree's counter stays at its largest: see node.countChild.
	parent.creates++
	parent.children++
	p.over[path] = &record{acl: acl, kind: m.node}
	return m, fault.CodeOK
}

// hasValidMode reports whether the mode of a create exists and fits its operation. A createTTL, and
// no other create, has a mode with a TTL, and then the TTL is within bounds.
func (r *request) hasValidMode() bool {
	mode := r.mode()
	if !mode.exists() || mode.hasTTL() != (r.op == fault.OpCreateTTL) {
		return false
	}
	return !mode.hasTTL() || r.ttl > 0 && r.ttl <= maxTTL
}

// kindOfNode returns the kind of the znode that a create makes. The operation decides first, then
// the mode. So the mode container alone makes no container, except in a multi, where normalize
// changes the operation.
func (r *request) kindOfNode() kind {
	switch {
	case r.op == fault.OpCreateContainer:
		return container
	case r.op == fault.OpCreateTTL:
		return ttlNode
	case r.mode().isEphemeral():
		return ephemeral
	}
	return persistent
}

// sequence returns the suffix of a sequential node's name: ten digits, or a minus sign and nine
// after the counter has wrapped.
func sequence(n int32) string { return fmt.Sprintf("%010d", n) }

// deleteContainer prepares what servers send to themselves. 3.8 refuses every one of a client,
// because it never finds the path. Later versions carry it out without checking a permission.
func (p *preparer) deleteContainer(r *request) (mutation, fault.Code) {
	parentPath, ok := parentOf(r.path)
	if !p.dialect.deletesContainers || !ok {
		return mutation{}, fault.CodeBadArguments
	}
	n := p.record(r.path)
	switch {
	case n == nil:
		return mutation{}, fault.CodeNoNode
	case n.children > 0:
		return mutation{}, fault.CodeNotEmpty
	case n.kind == ephemeral:
		return mutation{}, fault.CodeBadVersion
	}
	p.record(parentPath).children--
	p.over[r.path] = &record{gone: true}
	return mutation{kind: mutDelete, op: r.op, path: r.path}, fault.CodeOK
}

// delete checks the path's form, that the parent exists, the permission on the parent, whose list
// changes, that the node exists, its version, and that it has no children.
func (p *preparer) delete(r *request) (mutation, fault.Code) {
	parentPath, ok := parentOf(r.path)
	if !ok || special(r.path) {
		return mutation{}, fault.CodeBadArguments
	}
	parent := p.record(parentPath)
	switch {
	case parent == nil:
		return mutation{}, fault.CodeNoNode
	case !p.may(parent, r.perm):
		return mutation{}, fault.CodeNoAuth
	}
	n := p.record(r.path)
	switch {
	case n == nil:
		return mutation{}, fault.CodeNoNode
	case !r.acceptsVersion(n.version):
		return mutation{}, fault.CodeBadVersion
	case n.children > 0:
		return mutation{}, fault.CodeNotEmpty
	}
	parent.children--
	p.over[r.path] = &record{gone: true}
	return mutation{kind: mutDelete, op: r.op, path: r.path}, fault.CodeOK
}

// preparerLocked returns a preparer for one write. Whichever member the client is connected to, it
// reads the leader's state: the leader orders the writes.
func (s *Server) preparerLocked(session int64, ids []identity) *preparer {
	return &preparer{tree: s.leader.tree, session: session, ids: ids,
		sasl: len(s.opt.saslUsers) > 0, dialect: s.opt.dialect,
		over: map[string]*record{}, overlaps: s.overlaps}
}

// commitLocked makes one transaction of muts, gives it its zxid, and passes it to every member.
// Each applies it as soon as its lag allows. The member that has the request (at) applies it at
// once, because it cannot answer before it knows the outcome. A member that is cut off applies
// nothing. ended is the session that the transaction ends, or 0.
//
// It returns the stats that the mutations left behind in at's replica, one for each.
func (s *Server) commitLocked(at *Member, muts []mutation, ended int64) []Stat {
	s.zxid++
	x := &txn{zxid: s.zxid, time: time.Now().UnixMilli(), muts: muts, ended: ended}
	var stats []Stat
	// An empty transaction, too: the members' zxids must follow the leader's.
	for _, m := range s.members {
		m.pending = append(m.pending, x)
		if m == at {
			stats = m.catchUpLocked(0)
		} else {
			m.catchUpLocked(m.lag)
		}
	}
	s.overlappedLocked(muts)
	for _, mu := range muts {
		if mu.node == container || mu.node == ttlNode {
			s.poke()
		}
	}
	s.changedLocked()
	return stats
}

// endSessionLocked ends a session for good, in one transaction that also deletes its ephemerals. If
// the list of their paths is too long for servers to read, it takes the ensemble down (see
// Failure).
func (s *Server) endSessionLocked(at *Member, id int64) {
	delete(s.sessions, id) // first: what the deletions trigger must not find the session alive
	var muts []mutation
	list := lengthSize
	for _, p := range s.leader.tree.owned(id) {
		muts = append(muts, deletion(p))
		list += lengthSize + len(p)
	}
	s.commitLocked(at, muts, id)
	limit := 2 * s.opt.maxPacket
	if list <= limit {
		return
	}
	s.failLocked(fmt.Errorf(
		"zktest: the ensemble has failed: session %#x ended with %d ephemerals, a list of %d bytes; "+
			"servers read no transaction longer than %d, on the wire and in their logs",
		id, len(muts), list, limit))
}

// deletion returns the mutation that deletes a znode which is known to exist, and to be empty.
func deletion(path string) mutation {
	return mutation{kind: mutDelete, op: fault.OpDelete, path: path}
}

// failLocked takes all members down for good. Only the first failure counts.
func (s *Server) failLocked(why error) {
	if s.failure != nil {
		return
	}
	s.failure = why
	s.log.Error("zktest: failed", "error", why)
	for _, m := range s.members {
		m.down = true
		m.killLocked()
	}
	s.changedLocked()
}

// sweepLocked deletes the containers and TTL nodes that are due, in the order of their paths and
// each in its own transaction.
func (s *Server) sweepLocked(now time.Time) {
	t := s.leader.tree
	var due []string
	for p := range t.expiring {
		if t.nodes[p].isDue(now) {
			due = append(due, p)
		}
	}
	slices.Sort(due)
	for _, p := range due {
		s.commitLocked(s.leader, []mutation{deletion(p)}, 0)
	}
}

// isDue reports whether a sweep deletes the node: a container without children, or a TTL node
// without children that was last written longer ago than its TTL. A container that has never had a
// child is not due, because otherwise it could be deleted between its creation and its first child.
func (n *node) isDue(now time.Time) bool {
	if len(n.children) > 0 {
		return false
	}
	switch n.kind {
	case container:
		return n.creates > 0
	case ttlNode:
		return now.UnixMilli()-n.mtime > n.ttl
	}
	return false
}
