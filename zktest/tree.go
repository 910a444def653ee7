package zktest

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

// Stat is ZooKeeper's metadata of a znode. Times are milliseconds since the epoch.
type Stat struct {
	Czxid, Mzxid, Ctime, Mtime  int64
	Version, Cversion, Aversion int32
	EphemeralOwner              int64
	DataLength, NumChildren     int32
	Pzxid                       int64
}

// ACL grants Perms (bits: read 1, write 2, create 4, delete 8, admin 16) to the identity that
// Scheme and ID name.
type ACL struct {
	Perms      int32
	Scheme, ID string
}

// kind says what deletes a znode.
type kind uint8

const (
	persistent kind = iota
	ephemeral       // deleted with its session
	container       // deleted some time after its last child
	ttlNode         // deleted after its time to live without a child and a write
)

// node is one znode of one replica. Only transactions change it.
type node struct {
	data     []byte
	acl      []ACL // never changed in place: replicas share it
	children map[string]struct{}

	czxid, mzxid, pzxid int64
	ctime, mtime        int64
	version, aversion   int32
	creates             int32 // children ever created: the number the next sequential child gets
	kind                kind
	owner               int64 // of an ephemeral: its session
	ttl                 int64 // of a TTL node, in milliseconds
}

// stat returns what clients see of the node's metadata. cversion counts the changes of the list of
// children: a child that exists counts once, and one that has been deleted counts twice.
func (n *node) stat() Stat {
	num := int32(len(n.children))
	return Stat{
		Czxid: n.czxid, Mzxid: n.mzxid, Ctime: n.ctime, Mtime: n.mtime,
		Version: n.version, Cversion: n.creates*2 - num, Aversion: n.aversion,
		EphemeralOwner: n.owner, DataLength: int32(len(n.data)), NumChildren: num, Pzxid: n.pzxid,
	}
}

// tree is the state that transactions build. Every member has its own copy and applies the same
// transactions to it in the same order, so a member can lag.
type tree struct {
	nodes      map[string]*node              // as on a real server, the root is also under ""
	ephemerals map[int64]map[string]struct{} // paths by session; no entry is empty
	expiring   map[string]struct{}           // the paths of containers and TTL nodes
	zxid       int64                         // of the last transaction applied
}

var (
	openACL     = []ACL{{Perms: permAll, Scheme: schemeWorld, ID: worldID}}
	readOnlyACL = []ACL{{Perms: PermRead, Scheme: schemeWorld, ID: worldID}}
)

// newTree returns the tree of a server that is started for the first time: the root and three nodes
// of ZooKeeper's own. Their zxids and times are zero. The root and /zookeeper have children that no
// request created, so their cversion begins below zero.
func newTree() *tree {
	t := &tree{
		nodes:      map[string]*node{},
		ephemerals: map[int64]map[string]struct{}{},
		expiring:   map[string]struct{}{},
	}
	root := &node{data: []byte{}, acl: openACL, children: map[string]struct{}{"zookeeper": {}}}
	t.nodes["/"], t.nodes[""] = root, root
	t.nodes["/zookeeper"] = &node{data: []byte{}, acl: openACL,
		children: map[string]struct{}{"quota": {}, "config": {}}}
	t.nodes["/zookeeper/quota"] = &node{data: []byte{}, acl: openACL}
	t.nodes["/zookeeper/config"] = &node{data: []byte{}, acl: readOnlyACL, aversion: -1}
	return t
}

// clone returns a copy of the tree, for a new replica.
func (t *tree) clone() *tree {
	c := &tree{
		nodes:      make(map[string]*node, len(t.nodes)),
		ephemerals: make(map[int64]map[string]struct{}, len(t.ephemerals)),
		expiring:   maps.Clone(t.expiring),
		zxid:       t.zxid,
	}
	for p, n := range t.nodes {
		m := *n
		m.data = bytes.Clone(n.data)
		m.children = maps.Clone(n.children)
		c.nodes[p] = &m
	}
	c.nodes[""] = c.nodes["/"]
	for id, paths := range t.ephemerals {
		c.ephemerals[id] = maps.Clone(paths)
	}
	return c
}

// split returns a path's parent, which is "" for a child of the root, and its last component. The
// path must have a slash.
func split(p string) (parent, name string) {
	i := strings.LastIndexByte(p, '/')
	return p[:i], p[i+1:]
}

// fire is called for every event that a mutation causes. acl decides which clients may get the
// event.
type fire func(path string, ev event, zxid int64, acl []ACL)

// apply makes one mutation of the transaction x, which has been checked and cannot fail. It returns
// the stat that the mutation leaves behind, zero if its result has none.
func (t *tree) apply(m *mutation, x *txn, f fire) Stat {
	switch m.kind {
	case mutCreate:
		return t.create(m, x, f)
	case mutDelete:
		t.delete(m.path, x.zxid, f)
	case mutSetData:
		n := t.nodes[m.path]
		n.data, n.version = m.data, m.version
		n.mzxid, n.mtime = x.zxid, x.time
		st := n.stat()
		f(m.path, eventDataChanged, x.zxid, n.acl)
		return st
	case mutSetACL:
		n := t.nodes[m.path]
		n.acl, n.aversion = m.acl, m.version
		return n.stat()
	case mutSequence:
		t.nodes[m.path].creates = m.creates
	}
	return Stat{}
}

// create adds a node and fires its event and then its parent's. It returns the node's stat of this
// moment: later parts of the same multi may change the node again.
func (t *tree) create(m *mutation, x *txn, f fire) Stat {
	parent, name := split(m.path)
	p := t.nodes[parent]
	p.countChild(m.creates, x.zxid)
	if p.children == nil {
		p.children = map[string]struct{}{}
	}
	p.children[name] = struct{}{}
	n := &node{
		data:  m.data,
		acl:   m.acl,
		czxid: x.zxid,
		mzxid: x.zxid,
		pzxid: x.zxid,
		ctime: x.time,
		mtime: x.time,
		kind:  m.node,
		owner: m.owner,
		ttl:   m.ttl,
	}
	t.nodes[m.path] = n
	t.index(m.path, n)
	st := n.stat()
	f(m.path, eventCreated, x.zxid, n.acl)
	f(orRoot(parent), eventChildrenChanged, x.zxid, p.acl)
	return st
}

// countChild sets the counter of created children. The transaction brings the new value, so that
// replicas agree and the parts of a multi continue each other's.
//
// The counter only rises. Once a transaction brings the first negative value, the counter stays at
// its largest, and each later sequential child asks for the number 2147483647 again.
func (n *node) countChild(creates int32, zxid int64) {
	if creates > n.creates {
		n.creates, n.pzxid = creates, zxid
	}
}

// delete removes a node and fires its event and then its parent's. The parent's counter of created
// children stays: numbers are never reused.
func (t *tree) delete(path string, zxid int64, f fire) {
	parent, name := split(path)
	n, p := t.nodes[path], t.nodes[parent]
	delete(p.children, name)
	p.pzxid = max(p.pzxid, zxid)
	delete(t.nodes, path)
	t.unindex(path, n)
	f(path, eventDeleted, zxid, n.acl)
	f(orRoot(parent), eventChildrenChanged, zxid, p.acl)
}

// index records a new node among those of its session, or among those that may expire.
func (t *tree) index(path string, n *node) {
	switch n.kind {
	case ephemeral:
		if t.ephemerals[n.owner] == nil {
			t.ephemerals[n.owner] = map[string]struct{}{}
		}
		t.ephemerals[n.owner][path] = struct{}{}
	case container, ttlNode:
		t.expiring[path] = struct{}{}
	}
}

// unindex undoes index.
func (t *tree) unindex(path string, n *node) {
	switch n.kind {
	case ephemeral:
		delete(t.ephemerals[n.owner], path)
		if len(t.ephemerals[n.owner]) == 0 {
			delete(t.ephemerals, n.owner)
		}
	case container, ttlNode:
		delete(t.expiring, path)
	}
}

// orRoot returns the path p, or the root's usual name for its second one.
func orRoot(p string) string {
	if p == "" {
		return "/"
	}
	return p
}

// list returns the names of a node's children, sorted; not nil. The real server promises no order,
// so any is valid.
func (n *node) list() []string {
	names := slices.AppendSeq(make([]string, 0, len(n.children)), maps.Keys(n.children))
	slices.Sort(names)
	return names
}

// below returns the number of descendants.
func (t *tree) below(path string) int32 {
	if path == "/" {
		return int32(len(t.nodes) - 2) // without the root and its second name
	}
	n := 0
	for p := range t.nodes {
		if strings.HasPrefix(p, path+"/") {
			n++
		}
	}
	return int32(min(n, math.MaxInt32))
}

// owned returns the paths of a session's ephemerals in the order of their creation: unlike that of
// their names, which may be random, it is the same in every run.
func (t *tree) owned(session int64) []string {
	return slices.SortedFunc(maps.Keys(t.ephemerals[session]), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.nodes[a].czxid, t.nodes[b].czxid), strings.Compare(a, b))
	})
}
