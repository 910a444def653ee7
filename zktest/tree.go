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

// node is one znode of one replica.
type node struct {
	data     []byte
	acl      []ACL // never changed in place: replicas share it
	children map[string]struct{}

	czxid, mzxid, pzxid int64
	ctime, mtime        int64
	version, aversion   int32
	creates             int32 // children ever created: the number the next sequential child gets
	kind                kind
	owner               int64 // session of an ephemeral
	ttl                 int64 // milliseconds
}

// stat derives the client's view. cversion counts changes of the list of children: every child
// created and deleted counts twice, every existing one once.
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
	nodes      map[string]*node // "" is a second name of the root, as in the real server
	ephemerals map[int64]map[string]struct{}
	expiring   map[string]struct{} // containers and TTL nodes
	zxid       int64               // of the last transaction applied
}

var (
	openACL     = []ACL{{Perms: permAll, Scheme: schemeWorld, ID: worldID}}
	readOnlyACL = []ACL{{Perms: PermRead, Scheme: schemeWorld, ID: worldID}}
)

// newTree holds the nodes of a fresh server: the root and three of ZooKeeper's own.
func newTree() *tree {
	t := &tree{
		nodes:      map[string]*node{},
		ephemerals: map[int64]map[string]struct{}{},
		expiring:   map[string]struct{}{},
	}
	// These four have all stats zero. /zookeeper and the root count children that no request
	// created, so their cversion begins below zero.
	root := &node{data: []byte{}, acl: openACL, children: map[string]struct{}{"zookeeper": {}}}
	t.nodes["/"], t.nodes[""] = root, root
	t.nodes["/zookeeper"] = &node{data: []byte{}, acl: openACL,
		children: map[string]struct{}{"quota": {}, "config": {}}}
	t.nodes["/zookeeper/quota"] = &node{data: []byte{}, acl: openACL}
	t.nodes["/zookeeper/config"] = &node{data: []byte{}, acl: readOnlyACL, aversion: -1}
	return t
}

// clone copies the tree for a new replica.
func (t *tree) clone() *tree {
	c := &tree{nodes: make(map[string]*node, len(t.nodes)),
		ephemerals: map[int64]map[string]struct{}{},
		expiring:   map[string]struct{}{}, zxid: t.zxid}
	for p, n := range t.nodes {
		m := *n
		m.data = bytes.Clone(n.data)
		m.children = make(map[string]struct{}, len(n.children))
		for k := range n.children {
			m.children[k] = struct{}{}
		}
		c.nodes[p] = &m
	}
	c.nodes[""] = c.nodes["/"]
	for id, ps := range t.ephemerals {
		c.ephemerals[id] = map[string]struct{}{}
		for p := range ps {
			c.ephemerals[id][p] = struct{}{}
		}
	}
	for p := range t.expiring {
		c.expiring[p] = struct{}{}
	}
	return c
}

// split returns a path's parent as the tree names it ("" for a child of the root) and its last
// component.
func split(p string) (parent, name string) {
	i := strings.LastIndexByte(p, '/')
	return p[:i], p[i+1:]
}

// fire gets every event that a mutation causes, with the ACL that decides which clients may get it.
type fire func(path string, ev event, zxid int64, acl []ACL)

// apply makes one mutation, which was checked before and cannot fail, and returns the stat it
// leaves behind.
func (t *tree) apply(m *mutation, x *txn, f fire) Stat {
	switch m.kind {
	case mutCreate:
		return t.create(m, x, f)
	case mutDelete:
		t.delete(m.path, x.zxid, f)
	case mutSetData:
		n := t.nodes[m.path]
		n.data, n.version, n.mzxid, n.mtime = m.data, m.version, x.zxid, x.time
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

func (t *tree) create(m *mutation, x *txn, f fire) Stat {
	parent, name := split(m.path)
	p := t.nodes[parent]
	// The transaction carries the counter, so that replicas agree and the parts of a multi continue
	// it. It only ever rises: so it stays at its largest value once a transaction brings the first
	// negative one, and each later sequential child asks for the number 2147483647 again.
	if m.creates > p.creates {
		p.creates, p.pzxid = m.creates, x.zxid
	}
	if p.children == nil {
		p.children = map[string]struct{}{}
	}
	p.children[name] = struct{}{}
	n := &node{data: m.data, acl: m.acl, czxid: x.zxid, mzxid: x.zxid, pzxid: x.zxid, ctime: x.time,
		mtime: x.time,
		kind:  m.node, owner: m.owner, ttl: m.ttl}
	t.nodes[m.path] = n
	switch m.node {
	case ephemeral:
		if t.ephemerals[m.owner] == nil {
			t.ephemerals[m.owner] = map[string]struct{}{}
		}
		t.ephemerals[m.owner][m.path] = struct{}{}
	case container, ttlNode:
		t.expiring[m.path] = struct{}{}
	}
	// The stat is that of this moment; later parts of the same multi may change the node again. The
	// node's event comes before its parent's, and a client that may not read the parent gets no
	// event of its list.
	st := n.stat()
	f(m.path, eventCreated, x.zxid, n.acl)
	f(orRoot(parent), eventChildrenChanged, x.zxid, p.acl)
	return st
}

func (t *tree) delete(path string, zxid int64, f fire) {
	parent, name := split(path)
	n, p := t.nodes[path], t.nodes[parent]
	delete(p.children, name)
	// A deletion does not change the counter of created children: numbers are never reused.
	p.pzxid = max(p.pzxid, zxid)
	delete(t.nodes, path)
	delete(t.expiring, path)
	if n.kind == ephemeral {
		delete(t.ephemerals[n.owner], path)
		if len(t.ephemerals[n.owner]) == 0 {
			delete(t.ephemerals, n.owner)
		}
	}
	f(path, eventDeleted, zxid, n.acl)
	f(orRoot(parent), eventChildrenChanged, zxid, p.acl)
}

// orRoot gives the root its usual name.
func orRoot(p string) string {
	if p == "" {
		return "/"
	}
	return p
}

// list returns a node's children in order; the real server promises none, so any order is valid.
func (n *node) list() []string {
	cs := make([]string, 0, len(n.children))
	for c := range n.children {
		cs = append(cs, c)
	}
	slices.Sort(cs)
	return cs
}

// below counts all descendants.
func (t *tree) below(path string) int32 {
	if path == "/" {
		return int32(len(t.nodes) - 2) // not the root, and not its second name
	}
	n := 0
	for p := range t.nodes {
		if strings.HasPrefix(p, path+"/") {
			n++
		}
	}
	return int32(min(n, math.MaxInt32))
}

// owned lists a session's ephemerals in the order of their creation, because their names may differ
// from run to run.
func (t *tree) owned(session int64) []string {
	return slices.SortedFunc(maps.Keys(t.ephemerals[session]), func(a, b string) int {
		if c := cmp.Compare(t.nodes[a].czxid, t.nodes[b].czxid); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
}
