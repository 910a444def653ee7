package zktest

import (
	"fmt"
	"slices"
	"strings"
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
	creates int32 // the parent's new counter; for mutSequence the node's own
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
	gone              bool
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
	over    map[string]*record
	// overlaps are the server's: creates that overlap, prepared but not applied.
	overlaps map[string]*overlap
}

// record returns the state of a path, or nil if there is no such znode.
func (p *preparer) record(path string) *record {
	path = orRoot(path)
	if r, ok := p.over[path]; ok {
		if r.gone {
			return nil
		}
		return r
	}
	// The first access makes a record, and later ones see what earlier parts changed in it.
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

// may checks the ACL of a node for the client.
func (p *preparer) may(r *record, perm int32) bool { return p.admin || allowed(r.acl, perm, p.ids) }

// prepare checks one write. The order of the checks decides which of several errors a client sees.
func (p *preparer) prepare(r *request) (mutation, fault.Code) {
	if r.noPath && !r.takesNull {
		return mutation{}, fault.CodeMarshallingError
	}
	return r.operation.prepare(p, r)
}

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
	case r.version != -1 && r.version != n.aversion:
		return mutation{}, fault.CodeBadVersion
	}
	n.acl, n.aversion = acl, next(n.aversion) // a counter of its own: the version is of the data
	return mutation{kind: mutSetACL, op: r.op, path: r.path, acl: acl, version: n.aversion},
		fault.CodeOK
}

func (p *preparer) check(r *request) (mutation, fault.Code) {
	if !validPath(r.path) {
		return mutation{}, fault.CodeBadArguments
	}
	if code := p.reach(p.record(r.path), r); code != fault.CodeOK {
		return mutation{}, code
	}
	return mutation{kind: mutCheck, op: r.op, path: r.path}, fault.CodeOK
}

// reconfig is refused: there is nothing to configure.
func (p *preparer) reconfig(*request) (mutation, fault.Code) {
	return mutation{}, fault.CodeReconfigDisabled
}

// fixACL is the package's fixACL for a request, with checks of forms that only the wire can carry.
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
	case r.version != -1 && r.version != n.version:
		return fault.CodeBadVersion
	}
	return fault.CodeOK
}

// next is the version after v. It may become -1, which no client can then name: the 3.8 server does
// the same.
func next(v int32) int32 { return v + 1 }

// The create modes, as the flags of a create request number them.
const (
	modePersistent = iota
	modeEphemeral
	modeSequential
	modeEphemeralSequential
	modeContainer
	modeTTL
	modeTTLSequential
)

const maxTTL = 1<<40 - 1 // milliseconds; five bytes of the owner field hold it

// create checks, in this order: the mode, the path's form, the ACL, the parent, the name with its
// number, that the name is free, and that the parent is no ephemeral. The operation createContainer
// needs no flag; a flag alone makes a container only inside a multi.
func (p *preparer) create(r *request) (mutation, fault.Code) {
	none := mutation{}
	if r.flags < modePersistent || r.flags > modeTTLSequential {
		return none, fault.CodeBadArguments
	}
	// A TTL requires a mode with a TTL and vice versa.
	withTTL := r.flags == modeTTL || r.flags == modeTTLSequential
	if withTTL != (r.op == fault.OpCreateTTL) || withTTL && (r.ttl <= 0 || r.ttl > maxTTL) {
		return none, fault.CodeBadArguments
	}
	parentPath, ok := parentOf(r.path)
	if !ok {
		return none, fault.CodeBadArguments
	}
	acl, code := p.fixACL(r)
	if code != fault.CodeOK {
		return none, code
	}
	parent := p.record(parentPath)
	switch {
	case parent == nil:
		return none, fault.CodeNoNode
	case !p.may(parent, r.perm):
		return none, fault.CodeNoAuth
	}
	path := r.path
	if r.flags == modeSequential || r.flags == modeEphemeralSequential ||
		r.flags == modeTTLSequential {
		path += sequence(parent.creates)
	}
	switch {
	case !validPath(path):
		return none, fault.CodeBadArguments
	case p.record(path) != nil:
		return none, fault.CodeNodeExists
	case parent.kind == ephemeral:
		return none, fault.CodeNoChildrenForEphemerals
	}
	// The operation decides first which kind of node it becomes, then the flags.
	m := mutation{kind: mutCreate, op: r.op, path: path, data: r.data, acl: acl,
		creates: parent.creates + 1}
	switch {
	case r.op == fault.OpCreateContainer:
		m.node = container
	case r.op == fault.OpCreateTTL:
		m.node, m.ttl = ttlNode, r.ttl
	case r.flags == modeEphemeral || r.flags == modeEphemeralSequential:
		m.node, m.owner = ephemeral, p.session
	}
	// Only in the record, and there the counter does wrap: so a multi that crosses the end shows
	// the numbers beyond it.
	parent.creates++
	parent.children++
	p.over[path] = &record{acl: acl, kind: m.node}
	return m, fault.CodeOK
}

// sequence is the suffix of a sequential node's name: ten digits, or a minus sign and nine once the
// counter wrapped.
func sequence(n int32) string { return fmt.Sprintf("%010d", n) }

// deleteContainer is what servers send to themselves. For a client's, 3.8 never finds the path;
// later versions carry it out without checking a permission.
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

// delete checks the permission on the parent, not on the node: deleting changes the parent's list.
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
	case r.version != -1 && r.version != n.version:
		// -1 is any version, and the only special number
		return mutation{}, fault.CodeBadVersion
	case n.children > 0:
		return mutation{}, fault.CodeNotEmpty
	}
	parent.children--
	p.over[r.path] = &record{gone: true}
	return mutation{kind: mutDelete, op: r.op, path: r.path}, fault.CodeOK
}

// preparerLocked reads the leader's state, whichever member the client is connected to: the leader
// orders writes.
func (s *Server) preparerLocked(session int64, ids []identity) *preparer {
	return &preparer{tree: s.leader.tree, session: session, ids: ids,
		sasl: len(s.opt.saslUsers) > 0, dialect: s.opt.dialect,
		over: map[string]*record{}, overlaps: s.overlaps}
}

// commitLocked gives the transaction its zxid and passes it to every member: at once to the
// requesting one, which cannot answer before it knows the outcome, and to the others as far as
// their lag allows. It returns the stats that the mutations left in the requesting member's
// replica.
func (s *Server) commitLocked(at *Member, muts []mutation, ended int64) []Stat {
	s.zxid++
	x := &txn{zxid: s.zxid, time: time.Now().UnixMilli(), muts: muts, ended: ended}
	var stats []Stat
	// Every member gets every transaction, including empty ones: its zxid must follow the leader's.
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

// endSessionLocked closes a session for good: the one transaction that ends it deletes its
// ephemerals.
func (s *Server) endSessionLocked(at *Member, id int64) {
	// Removed from the table first: what its deletions trigger must not find it alive.
	delete(s.sessions, id)
	var muts []mutation
	list := 4
	for _, p := range s.leader.tree.owned(id) {
		muts = append(muts, mutation{kind: mutDelete, op: fault.OpDelete, path: p})
		list += 4 + len(p)
	}
	s.commitLocked(at, muts, id)
	if limit := 2 * s.opt.maxPacket; list > limit {
		s.failLocked(
			fmt.Errorf(
				"zktest: the ensemble has failed: session %#x ended with %d ephemerals, a list of %d bytes; "+
					"servers read no transaction longer than %d, on the wire and in their logs", id, len(muts), list, limit))
	}
}

// failLocked takes all members down for good.
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

// sweepLocked deletes the containers and TTL nodes that are due. A container that never had a child
// stays, because otherwise it could be deleted between its creation and its first child.
func (s *Server) sweepLocked(now time.Time) {
	t := s.leader.tree
	var gone []string
	for p := range t.expiring {
		n := t.nodes[p]
		idle := now.UnixMilli() - n.mtime
		if len(n.children) == 0 &&
			(n.kind == container && n.creates > 0 || n.kind == ttlNode && idle > n.ttl) {
			gone = append(gone, p)
		}
	}
	slices.SortFunc(gone, strings.Compare)
	for _, p := range gone {
		s.commitLocked(s.leader, []mutation{{kind: mutDelete, op: fault.OpDelete, path: p}}, 0)
	}
}
