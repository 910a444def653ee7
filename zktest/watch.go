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

// watchMode is how the watches of one connection on one path behave: one bit for each mode, because
// modes may coexist. A watchMode without any bit is no watch.
type watchMode uint8

const (
	// watchOnce goes when it fires.
	watchOnce watchMode = 1 << iota

	// watchPersistent stays when it fires.
	watchPersistent

	// watchRecursive stays as well, and covers all descendants. It gets no events of changed lists
	// of children: the event of the child itself says the same.
	watchRecursive
)

// hears reports whether a watch of this mode, on the very path that the event is about, gets it.
func (m watchMode) hears(ev event) bool {
	return m != watchRecursive || ev != eventChildrenChanged
}

// isRecursive reports whether a watch covers the descendants of its path, whatever else it does.
func (m watchMode) isRecursive() bool { return m&watchRecursive != 0 }

// watchTable is one of a member's two: dataWatches and childWatches. In 3.8 a connection has one
// watch per path in each, and the mode of the latest call replaces the previous one, even if that
// turns a persistent watch into a one-shot one. Since 3.9 the modes coexist.
//
// A connection is under byConn[c][path] exactly if it is under byPath[path][c].
type watchTable struct {
	byPath    map[string]map[*conn]watchMode
	byConn    map[*conn]map[string]struct{} // keeps an entry without paths until removeConn
	recursive int                           // how many watches are recursive
	replaces  bool                          // dialect.oneModePerWatch
}

// newWatchTable returns an empty table for servers of a version.
func newWatchTable(d *dialect) *watchTable {
	return &watchTable{byPath: map[string]map[*conn]watchMode{},
		byConn:   map[*conn]map[string]struct{}{},
		replaces: d.oneModePerWatch}
}

// add gives a connection a watch. A connection that is gone gets none, since nothing would remove
// it.
func (w *watchTable) add(c *conn, path string, mode watchMode) {
	if c.gone {
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

// set changes the mode of a connection's watch. The caller has made the path's entry in byPath.
func (w *watchTable) set(c *conn, path string, mode watchMode) {
	w.uncount(w.byPath[path][c])
	w.byPath[path][c] = mode
	w.count(mode)
}

// count and uncount maintain the number of recursive watches. While it is zero, no event needs a
// walk up its path.
func (w *watchTable) count(m watchMode) {
	if m.isRecursive() {
		w.recursive++
	}
}

func (w *watchTable) uncount(m watchMode) {
	if m.isRecursive() {
		w.recursive--
	}
}

// remove takes the given modes away from a connection's watch, and reports whether the watch had
// any of them. In 3.8 the modes do not matter: the whole watch goes.
func (w *watchTable) remove(c *conn, path string, modes watchMode) bool {
	mode := w.byPath[path][c]
	if w.replaces {
		modes = mode
	}
	if mode&modes == 0 {
		return false
	}
	if rest := mode &^ modes; rest != 0 {
		w.set(c, path, rest)
	} else {
		w.drop(c, path)
	}
	return true
}

// drop removes a watch, which must exist.
func (w *watchTable) drop(c *conn, path string) {
	w.uncount(w.byPath[path][c])
	delete(w.byPath[path], c)
	if len(w.byPath[path]) == 0 {
		delete(w.byPath, path)
	}
	delete(w.byConn[c], path)
}

// removeConn removes all of a connection's watches. No event is sent.
func (w *watchTable) removeConn(c *conn) {
	for p := range w.byConn[c] {
		w.drop(c, p)
	}
	delete(w.byConn, c)
}

// contains reports what checkWatches asks: whether the connection has a watch on the path with any
// of the modes. In 3.8 the modes do not matter, and any connection's watch counts.
func (w *watchTable) contains(c *conn, path string, modes watchMode) bool {
	if w.replaces {
		return len(w.byPath[path]) > 0
	}
	return w.byPath[path][c]&modes != 0
}

// size returns the number of pairs of connection and path.
func (w *watchTable) size() int {
	n := 0
	for _, cs := range w.byPath {
		n += len(cs)
	}
	return n
}

// fire removes the one-shot watches of an event, and returns the connections that get it, each
// once. They are in the order of their arrival, so that a run can be repeated.
func (w *watchTable) fire(path string, ev event) []*conn {
	hear := w.fireAt(path, ev)
	if ev != eventChildrenChanged {
		hear = append(hear, w.recursiveAbove(path)...)
	}
	slices.SortFunc(hear, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	return slices.Compact(hear)
}

// fireAt fires the watches on the very path of an event: it takes their one-shot mode away, and
// returns the connections that get the event, in any order.
func (w *watchTable) fireAt(path string, ev event) []*conn {
	var hear []*conn
	for c, mode := range w.byPath[path] {
		if mode.hears(ev) {
			hear = append(hear, c)
		}
		if mode&watchOnce != 0 {
			w.remove(c, path, watchOnce)
		}
	}
	return hear
}

// recursiveAbove returns the connections with a recursive watch on an ancestor of a path, in any
// order, and as often as they have one.
func (w *watchTable) recursiveAbove(path string) []*conn {
	if w.recursive == 0 {
		return nil
	}
	var hear []*conn
	for path != "/" && path != "" {
		parent, _ := split(path)
		path = orRoot(parent)
		for c, mode := range w.byPath[path] {
			if mode.isRecursive() {
				hear = append(hear, c)
			}
		}
	}
	return hear
}

// notifyLocked sends an event to those of the connections in hear that may read the node. The other
// connections' watches are consumed without an event. (Later versions do the same, and so does
// 3.8.0 as Debian packages it.)
func (m *Member) notifyLocked(hear []*conn, path string, ev event, zxid int64, acl []ACL) {
	for _, c := range hear {
		if allowed(acl, PermRead, c.ids) {
			c.notifyLocked(path, ev, zxid)
		}
	}
}

// eventLocked fires the watches of one event. A tree calls it for each change.
func (m *Member) eventLocked(path string, ev event, zxid int64, acl []ACL) {
	switch ev {
	case eventCreated, eventDataChanged:
		m.notifyLocked(m.dataWatches.fire(path, ev), path, ev, zxid, acl)
	case eventChildrenChanged:
		m.notifyLocked(m.childWatches.fire(path, ev), path, ev, zxid, acl)
	case eventDeleted:
		// A deletion fires the watches of both tables, but a connection gets it once.
		heard := m.dataWatches.fire(path, ev)
		m.notifyLocked(heard, path, ev, zxid, acl)
		others := slices.DeleteFunc(m.childWatches.fire(path, ev), func(c *conn) bool {
			return slices.Contains(heard, c)
		})
		m.notifyLocked(others, path, ev, zxid, acl)
	}
}

// setWatchesLocked restores a reconnected client's watches. A one-shot watch on a node that has
// changed since the client last saw it is not restored: the client gets the event that it missed.
func (m *Member) setWatchesLocked(c *conn, r *request) {
	for _, p := range r.lists[listData] { // the client had seen the node exist
		switch n := m.tree.nodes[p]; {
		case n == nil:
			c.notifyLocked(p, eventDeleted, noZxid)
		case n.mzxid > r.since:
			c.notifyLocked(p, eventDataChanged, noZxid)
		default:
			m.dataWatches.add(c, p, watchOnce)
		}
	}
	for _, p := range r.lists[listExist] { // the client had seen it missing
		if m.tree.nodes[p] != nil {
			c.notifyLocked(p, eventCreated, noZxid)
		} else {
			m.dataWatches.add(c, p, watchOnce)
		}
	}
	for _, p := range r.lists[listChild] { // the client had listed its children
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
	for _, p := range r.lists[listPersistent] {
		m.addWatchLocked(c, p, watchPersistent)
	}
	for _, p := range r.lists[listRecursive] {
		m.addWatchLocked(c, p, watchRecursive)
	}
}

// addWatchLocked sets a persistent or recursive watch, in both tables. Since 3.9 a recursive one is
// in the table of data watches only.
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

// list returns the table's watches in any order. k is the kind of them all.
func (w *watchTable) list(k WatchKind) []Watch {
	var ws []Watch
	for p, cs := range w.byPath {
		for c, mode := range cs {
			ws = append(ws, Watch{Session: c.session, Path: p, Kind: k,
				Persistent: mode != watchOnce, Recursive: mode.isRecursive()})
		}
	}
	return ws
}

// sortWatches sorts by path, then by session and kind.
func sortWatches(ws []Watch) {
	slices.SortFunc(ws, func(a, b Watch) int {
		return cmp.Or(
			strings.Compare(a.Path, b.Path),
			cmp.Compare(a.Session, b.Session),
			cmp.Compare(a.Kind, b.Kind),
		)
	})
}
