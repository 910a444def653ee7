package zktest

import (
	"cmp"
	"slices"
	"strings"
)

// Watches belong to connections, not to sessions: a client that reconnects sets its own again
// (setWatches). Each member keeps two tables, one for the watches of exists and getData, one for
// those of getChildren, and searches them in a fixed order at each change of its tree. All of this
// runs under the server's lock; what is sent is only appended to outboxes.

// event is what happened to a znode, as its number on the wire.
type event int32

const (
	eventCreated         event = 1
	eventDeleted         event = 2
	eventDataChanged     event = 3
	eventChildrenChanged event = 4
)

// watchMode is how a watch behaves when it fires: one bit each, since a connection may have several
// on one path.
type watchMode uint8

const (
	watchOnce       watchMode = 1 << iota
	watchPersistent           // stays when it fires
	// stays, and covers all descendants; gets no events of changed lists of children
	watchRecursive
)

// watchTable is one of a member's two: dataWatches and childWatches. In 3.8 a connection has one
// watch per path in each, and the mode of the latest call replaces the previous one, even if that
// turns a persistent watch into a one-shot one. Since 3.9 the modes coexist.
type watchTable struct {
	byPath map[string]map[*conn]watchMode
	// keeps an empty entry for a connection whose watches have all fired
	byConn map[*conn]map[string]struct{}
	// number of recursive watches: without any, no walk up the path
	recursive int
	replaces  bool // dialect.oneModePerWatch
}

func newWatchTable(d *dialect) *watchTable {
	return &watchTable{byPath: map[string]map[*conn]watchMode{},
		byConn:   map[*conn]map[string]struct{}{},
		replaces: d.oneModePerWatch}
}

func (w *watchTable) add(c *conn, path string, mode watchMode) {
	if c.gone { // nothing would ever remove it again
		return
	}
	if w.byPath[path] == nil {
		w.byPath[path] = map[*conn]watchMode{}
	}
	if w.byConn[c] == nil {
		w.byConn[c] = map[string]struct{}{}
	}
	if !w.replaces {
		mode |= w.byPath[path][c]
	}
	w.set(c, path, mode)
	w.byConn[c][path] = struct{}{}
}

// set changes the mode of a watch.
func (w *watchTable) set(c *conn, path string, mode watchMode) {
	// of the replaced mode; if there was no watch, the mode is none, and nothing is counted
	w.count(w.byPath[path][c], -1)
	w.byPath[path][c] = mode
	w.count(mode, 1)
}

// count maintains the number of recursive watches, which spares nearly every event a walk up its
// path.
func (w *watchTable) count(m watchMode, d int) {
	if m&watchRecursive != 0 {
		w.recursive += d
	}
}

// remove removes a watch, as far as it has the given modes, and reports whether it existed. 3.8
// ignores the modes.
func (w *watchTable) remove(c *conn, path string, modes watchMode) bool {
	mode, ok := w.byPath[path][c]
	if !ok || !w.replaces && mode&modes == 0 {
		return false
	}
	if rest := mode &^ modes; rest != 0 && !w.replaces {
		w.set(c, path, rest)
	} else {
		w.drop(c, path, mode)
	}
	return true
}

// drop removes a watch that is known to exist.
func (w *watchTable) drop(c *conn, path string, mode watchMode) {
	w.count(mode, -1)
	delete(w.byPath[path], c)
	if len(w.byPath[path]) == 0 {
		delete(w.byPath, path)
	}
	delete(w.byConn[c], path)
}

// removeConn removes all of a connection's watches, without events.
func (w *watchTable) removeConn(c *conn) {
	for p := range w.byConn[c] {
		w.drop(c, p, w.byPath[p][c])
	}
	delete(w.byConn, c)
}

// contains answers checkWatches. In 3.8 any connection's watch on the path counts.
func (w *watchTable) contains(c *conn, path string, modes watchMode) bool {
	if w.replaces {
		return len(w.byPath[path]) > 0
	}
	return w.byPath[path][c]&modes != 0
}

// size counts the pairs of connection and path.
func (w *watchTable) size() int {
	n := 0
	for _, cs := range w.byPath {
		n += len(cs)
	}
	return n
}

// fire returns the connections that get an event, and removes the one-shot watches. The order is
// that of the connections' arrival, so that a run can be repeated.
func (w *watchTable) fire(path string, ev event) []*conn {
	var hear []*conn
	for at, top := path, true; ; top = false {
		for c, mode := range w.byPath[at] {
			switch {
			case mode == watchRecursive || mode&watchRecursive != 0 && !top:
				// A recursive watch reports the child itself; an event of the parent's changed list
				// would report the same twice.
				if ev != eventChildrenChanged {
					hear = append(hear, c)
				}
			case top:
				hear = append(hear, c)
				if mode == watchOnce {
					w.drop(c, at, mode)
				} else {
					w.set(c, at, mode&^watchOnce)
				}
			}
		}
		// Only recursive watches are found further up.
		if w.recursive == 0 || at == "/" || at == "" {
			break
		}
		parent, _ := split(at)
		at = orRoot(parent)
	}
	slices.SortFunc(hear, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	return slices.Compact(hear)
}

// notifyLocked sends an event to the connections whose clients may read the node. The others'
// watches are consumed without an event. (Later versions do the same, and so does 3.8.0 as Debian
// packages it.)
func (m *Member) notifyLocked(
	hear []*conn, path string, ev event, zxid int64, acl []ACL, except []*conn,
) {
	for _, c := range hear {
		if slices.Contains(except, c) || !allowed(acl, PermRead, c.ids) {
			continue
		}
		c.notifyLocked(path, ev, zxid)
	}
}

// eventLocked is what a tree calls for each change. A connection gets a deletion once, even if both
// tables have a watch of it.
func (m *Member) eventLocked(path string, ev event, zxid int64, acl []ACL) {
	switch ev {
	case eventCreated, eventDataChanged:
		m.notifyLocked(m.dataWatches.fire(path, ev), path, ev, zxid, acl, nil)
	case eventChildrenChanged:
		m.notifyLocked(m.childWatches.fire(path, ev), path, ev, zxid, acl, nil)
	case eventDeleted:
		// The deletion of a node fires the watches of the node and of its children.
		heard := m.dataWatches.fire(path, ev)
		m.notifyLocked(heard, path, ev, zxid, acl, nil)
		m.notifyLocked(m.childWatches.fire(path, ev), path, ev, zxid, acl, heard)
	}
}

// setWatchesLocked restores a reconnected client's watches, and sends at once the events that it
// missed.
func (m *Member) setWatchesLocked(c *conn, r *request) {
	for _, p := range r.lists[0] {
		switch n := m.tree.nodes[p]; { // the client had seen the node exist
		case n == nil:
			c.notifyLocked(p, eventDeleted, noZxid)
		case n.mzxid > r.since:
			c.notifyLocked(p, eventDataChanged, noZxid)
		default:
			m.dataWatches.add(c, p, watchOnce)
		}
	}
	for _, p := range r.lists[1] {
		if m.tree.nodes[p] != nil { // the client had seen it missing
			c.notifyLocked(p, eventCreated, noZxid)
		} else {
			m.dataWatches.add(c, p, watchOnce)
		}
	}
	for _, p := range r.lists[2] {
		switch n := m.tree.nodes[p]; {
		case n == nil:
			c.notifyLocked(p, eventDeleted, noZxid)
		case n.pzxid > r.since:
			c.notifyLocked(p, eventChildrenChanged, noZxid)
		default:
			m.childWatches.add(c, p, watchOnce)
		}
	}
	// The events that persistent watches have missed cannot be listed one by one: the client reads
	// for itself.
	for i, mode := range []watchMode{watchPersistent, watchRecursive} {
		for _, p := range r.lists[3+i] {
			m.addWatchLocked(c, p, mode)
		}
	}
}

// addWatchLocked sets a persistent watch, in both tables; 3.9 leaves a recursive one out of that of
// children.
func (m *Member) addWatchLocked(c *conn, path string, mode watchMode) {
	m.dataWatches.add(c, path, mode)
	if mode != watchRecursive || m.s.opt.dialect.oneModePerWatch {
		m.childWatches.add(c, path, mode)
	}
}

// Watch is one watch that the server keeps for a session.
type Watch struct {
	Session    int64
	Path       string
	Kind       WatchKind
	Persistent bool
	Recursive  bool
}

// WatchKind says what a watch is for.
type WatchKind string

// The kinds of watches: set by exists and getData, by getChildren. addWatch sets one of each.
const (
	WatchData     WatchKind = "data"
	WatchChildren WatchKind = "children"
)

func (w *watchTable) list(k WatchKind) []Watch {
	var ws []Watch
	for p, cs := range w.byPath {
		for c, mode := range cs {
			ws = append(ws, Watch{Session: c.session, Path: p, Kind: k,
				Persistent: mode != watchOnce, Recursive: mode&watchRecursive != 0})
		}
	}
	return ws
}

func sortWatches(ws []Watch) {
	slices.SortFunc(ws, func(a, b Watch) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		if c := cmp.Compare(a.Session, b.Session); c != 0 {
			return c
		}
		return strings.Compare(string(a.Kind), string(b.Kind))
	})
}
