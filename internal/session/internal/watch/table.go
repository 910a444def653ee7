package watch

import (
	"container/list"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Table is the table of the session's watches: for each path one of a kind, however many Watches
// wait for it. The server has the same watches: one that no call needs any more is removed there by
// removeWatches, and after a reconnection the new server is asked for those that are left. So
// neither side grows with the number of past waits.
//
// The order of frames tells to which watch a notification belongs. Requests and replies of a conn
// are strictly in order, and a reply's hook runs before the next frame is read. So a notification
// that is read before the reply to our request belongs to an earlier watch, and one that is read
// after it to this one. There is one exception: of a znode that is already gone, the server
// notifies before its reply to setWatches (see wakeLocked).
type Table struct {
	juteMaxBuffer int
	spawn         func(fn func()) bool // runs fn in a goroutine of the session
	missing       func(path string)    // told that a znode does not exist

	mu     sync.Mutex // guards what follows; outside the session's and a conn's
	conn   *link.Conn
	conns  uint64 // the number of conn: how many there have been
	told   int64  // see Answered
	asked  int    // setWatches requests of restore that conn has not answered
	byPath map[watchKey]*watched
	list   watchList // those of byPath, in the order in which a new server is asked for them
}

// watchKey is a path, with the chroot, and what of it is watched: the znode, or the list of its
// children.
type watchKey struct {
	path  string
	child bool
}

// watched is one watch of the table, with the Watches that wait for it.
//
// It is armed when the server has answered the request that sets it, and stays so when the
// connection is lost: the next server is asked to set it again. It leaves the table when it fires,
// when it can't be set, and when no Watch waits for it any more.
type watched struct {
	watchKey
	place   *list.Element // in Table.list
	waiters []*Watch      // in the order in which they came
	belief  belief
	armed   bool
	ready   chan struct{} // closed when armed; nil if no call waits for that

	// Set when the watch is armed.
	conn   uint64 // number of the conn on which the server answered
	exists bool   // the znode existed when the watch was set
	err    error  // why the watch can't be set

	// gone is set if the znode was believed present, and does not exist: the server has reported
	// its deletion before its reply, or says so in its reply.
	gone bool
}

// belief is what the caller of a znode's first Watch last saw: whether the znode existed.
type belief uint8

const (
	noBelief        belief = iota
	believedPresent        // see WatchAll
	believedAbsent         // see WatchAllAndCreation
)

// New returns an empty table. spawn runs a function in a goroutine of the session, unless that is
// over. missing is told, under the table's mutex, the path of a znode that does not exist.
func New(juteMaxBuffer int, spawn func(fn func()) bool, missing func(path string)) *Table {
	return &Table{juteMaxBuffer: juteMaxBuffer, spawn: spawn, missing: missing,
		byPath: map[watchKey]*watched{}}
}

func (ws *Table) closeLocked(w *Watch) {
	if i := slices.Index(w.t.waiters, w); i >= 0 {
		w.t.waiters = slices.Delete(w.t.waiters, i, i+1)
	}
	if len(w.t.waiters) > 0 || ws.byPath[w.t.watchKey] != w.t {
		return
	}
	switch {
	case w.t.armed:
		ws.removeLocked(w.t)
	case w.t.child, ws.conn == nil:
		// The server has no watch. If it still answers a list with one, the list's hook removes it.
		ws.dropLocked(w.t)
	}
	// Otherwise the hook of the request that sets it, or Restore, finds that no Watch waits.
}

// Add returns a Watch of path or, with child, of its children. It asks the server to watch path, if
// no other Watch does. To watch the children, the caller asks, with a list: see Listed.
func (ws *Table) Add(path string, child bool) *Watch {
	key := watchKey{path, child}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, ask := ws.enlistLocked(key, noBelief)
	if ask {
		ws.armLocked(w.t)
	}
	return w
}

// enlistLocked adds a Watch that waits for key. Of several Watches the first one's belief counts.
// ask says that the caller has to ask the server: otherwise it has been asked, or Restore will ask
// it.
func (ws *Table) enlistLocked(key watchKey, b belief) (w *Watch, ask bool) {
	t := ws.byPath[key]
	if t == nil {
		t = &watched{watchKey: key, belief: b}
		ws.byPath[key] = t
		ask = ws.list.add(t, ws.conn == nil)
	}
	w = &Watch{t: t, ws: ws}
	t.waiters = append(t.waiters, w)
	return w, ask
}

func (ws *Table) dropLocked(t *watched) {
	if ws.byPath[t.watchKey] == t {
		delete(ws.byPath, t.watchKey)
		ws.list.remove(t)
	}
}

// armLocked asks the server to watch t, in a request of its own. conn is not nil.
func (ws *Table) armLocked(t *watched) {
	if t.child { // WatchChildren itself sends the list with the watch
		return
	}
	frame := wire.AppendHeader(make([]byte, 0, 32+len(t.path)), wire.OpExists)
	frame = wire.AppendString(frame, t.path)
	frame = wire.AppendBool(frame, true)
	r := pipeline.Unawaited(wire.OpExists, "watch", t.path, frame)
	c := ws.conn
	r.Hook = func(code int32) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.conn == c { // otherwise the next conn has asked again, and its reply counts
			ws.setLocked(t, code)
		}
	}
	ws.conn.Enqueue(r)
}

// setLocked notes the code with which the server has answered the request that sets t, by exists or
// setWatches, and does what follows from it.
func (ws *Table) setLocked(t *watched, code int32) {
	t.armed, t.conn = true, ws.conns
	switch code {
	case wire.CodeOK:
		t.exists = !t.gone && t.belief != believedAbsent
	case wire.CodeNoNode:
		t.gone = t.belief == believedPresent
		ws.missing(t.path)
	default:
		t.err = failure.Of(code)
	}
	if t.ready != nil {
		close(t.ready)
		t.ready = nil
	}
	switch {
	case t.err != nil:
		ws.dropLocked(t)
		mayBeSet := !wire.Definite(code)
		if mayBeSet {
			ws.takeAwayLocked(t.watchKey)
		}
	case t.gone:
		if code == wire.CodeNoNode { // exists has left a watch for the znode's creation
			ws.takeAwayLocked(t.watchKey)
		}
		ws.fireLocked(t, zk.EventNodeDeleted, 0)
	case len(t.waiters) == 0:
		ws.removeLocked(t)
	}
}

// Listed is the hook of a list with a watch.
func (w *Watch) Listed(code int32) {
	ws, t := w.ws, w.t
	ws.mu.Lock()
	defer ws.mu.Unlock()
	current := ws.byPath[t.watchKey]
	switch {
	case code != wire.CodeOK: // the server has set nothing, and the call closes its Watch
	case current == nil:
		// No Watch waits for it: an earlier watch of the path has fired since we asked, or the call
		// was given up.
		ws.takeAwayLocked(t.watchKey)
	default:
		current.armed, current.conn = true, ws.conns
	}
}

// removeLocked removes an armed watch from the table and the server.
func (ws *Table) removeLocked(t *watched) {
	ws.dropLocked(t)
	ws.takeAwayLocked(t.watchKey)
}

// The server's types of watches, as removeWatches names them.
const (
	childWatch int32 = 1 // set by getChildren
	dataWatch  int32 = 2 // set by exists and getData
)

// takeAwayLocked has the server remove its watch. The answer does not matter: "no such watch" means
// that it has just fired, and one that a busy server keeps goes with its znode, or with the
// connection.
func (ws *Table) takeAwayLocked(t watchKey) {
	if ws.conn == nil {
		return // the server forgot it with the connection
	}
	kind := dataWatch
	if t.child {
		kind = childWatch
	}
	frame := wire.AppendHeader(make([]byte, 0, 32+len(t.path)), wire.OpRemoveWatches)
	frame = wire.AppendString(frame, t.path)
	frame = wire.AppendInt(frame, kind)
	ws.conn.Enqueue(pipeline.Unawaited(wire.OpRemoveWatches, "remove watch", t.path, frame))
}

// Fire delivers a notification that c has read, of what happened at zxid. It returns false if c is
// not in use any more. Then no Watch was fired: the next conn sets the watches again, as of before
// this notification.
func (ws *Table) Fire(c *link.Conn, event zk.EventType, path string, zxid int64) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.conn != c {
		return false
	}
	switch event {
	case zk.EventNodeDeleted: // one notification for both kinds
		ws.wakeLocked(watchKey{path, false}, event, zxid)
		ws.wakeLocked(watchKey{path, true}, event, zxid)
	case zk.EventNodeCreated, zk.EventNodeDataChanged:
		ws.wakeLocked(watchKey{path, false}, event, zxid)
	case zk.EventNodeChildrenChanged:
		ws.wakeLocked(watchKey{path, true}, event, zxid)
	} // no watch of ours has other events
	return true
}

// wakeLocked delivers an event to one watch. If the watch is not armed, the event belongs to an
// earlier watch of the path, with one exception: setWatches, if it finds a znode gone, says so
// before its reply. Then setLocked fires the watch, with that reply.
func (ws *Table) wakeLocked(key watchKey, event zk.EventType, zxid int64) {
	t := ws.byPath[key]
	if t == nil {
		return // its Watches were closed
	}
	if t.armed {
		ws.fireLocked(t, event, zxid)
		return
	}
	if t.belief == believedPresent && event == zk.EventNodeDeleted {
		t.gone = true
	}
}

func (ws *Table) fireLocked(t *watched, event zk.EventType, zxid int64) {
	ws.dropLocked(t)
	for _, w := range t.waiters {
		w.fireLocked(event, zxid, ws.conns)
	}
	t.waiters = nil
}

// Answered notes that c has answered a request, as of zxid, and so has told all events of our
// watches up to that: the next server repeats those after told. told may be less than the zxid that
// the session has seen, which the handshake names so that a server that lags behind refuses it. For
// a server that has told one event of a transaction may not have told the next one, and what it
// answers before it has the watches says nothing about them. ZooKeeper's own client does not count
// notifications either, and lets no request overtake its setWatches.
func (ws *Table) Answered(c *link.Conn, zxid int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.conn == c && ws.asked == 0 {
		ws.told = max(ws.told, zxid)
	}
}

// Attach makes c the table's conn, unless c has failed already: a later one may then have been
// attached.
func (ws *Table) Attach(c *link.Conn) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if c.Failure() != nil {
		return false
	}
	ws.conn, ws.asked = c, 0
	ws.conns++
	ws.list.unasked = ws.list.all.Front()
	return true
}

func (ws *Table) Detach(c *link.Conn) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.conn == c {
		ws.conn = nil
		ws.list.unasked = ws.list.all.Front()
	}
}

// Restore asks the server of c, which is attached, for the watches of the table. Armed ones are set
// again as of told, so that the server reports at once what has changed since. The others are asked
// for as if for the first time. The newest come first, as Watch.ExistedWhen needs it.
//
// Each call makes one request, and more says that another call is needed: in between, others can
// use the table. The caller has the requests written after the last call.
func (ws *Table) Restore(c *link.Conn) (more bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.conn != c {
		return false
	}
	again, believed := ws.nextUnaskedLocked()
	ws.asked += ws.setWatchesLocked(again, ws.told, func(_ []*watched, code int32) {
		if code != wire.CodeOK { // no Watch would ever fire
			c.Fail(fmt.Errorf("watches not restored: %w", failure.Of(code)))
			return
		}
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.conn == c {
			ws.asked--
		}
	})
	ws.armAllLocked(believed)
	return ws.list.unasked != nil
}

// nextUnaskedLocked takes the next watches for which the server has not been asked, as many as fit
// into a request. again are armed: they are set again. Of believed we know whether the znode
// existed. Of the others nextUnaskedLocked disposes.
func (ws *Table) nextUnaskedLocked() (again, believed []*watched) {
	for size := 0; ws.list.unasked != nil && size < setWatchesMax; {
		t := ws.list.next()
		size += watchBytes + len(t.path)
		switch {
		case !t.armed && len(t.waiters) == 0:
			// no Watch waits, and the hook that drops it was lost with the last conn
			ws.dropLocked(t)
		case t.armed && ws.unnamable(t): // its waiters find out what has changed
			ws.fireLocked(t, zk.EventNodeDataChanged, 0)
		case t.armed:
			again = append(again, t)
		case t.belief != noBelief:
			t.gone = false
			believed = append(believed, t)
		default:
			ws.armLocked(t)
		}
	}
	return again, believed
}

// watchList lists the watches of the table, and knows which of them the present server has been
// asked for. Of those that it has not been asked for, the newest is the first. The methods of a
// watchList take constant time. Table.mu guards it.
type watchList struct {
	all list.List // of *watched
	// the server has not been asked for it, nor for any behind it; nil if there is none
	unasked *list.Element
}

// add enters t. It returns whether the caller has to ask for t now: otherwise Restore will. It will
// if there is no server (isDetached), or if it is at work.
func (l *watchList) add(t *watched, isDetached bool) (ask bool) {
	isRestoring := l.unasked != nil
	if isRestoring {
		t.place = l.all.InsertBefore(t, l.unasked)
	} else {
		t.place = l.all.PushFront(t)
	}
	if isRestoring || isDetached {
		l.unasked = t.place
		return false
	}
	return true
}

// next takes the next watch that restore asks for. There is one.
func (l *watchList) next() *watched {
	t := l.unasked.Value.(*watched) //nolint:forcetypeassert // nothing else is entered
	l.unasked = l.unasked.Next()
	return t
}

func (l *watchList) remove(t *watched) {
	if l.unasked == t.place {
		l.unasked = t.place.Next()
	}
	l.all.Remove(t.place)
}

// Len returns the number of paths in the table, without those that the next connection will drop.
func (ws *Table) Len() (n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, t := range ws.byPath {
		if ws.conn != nil || t.armed || len(t.waiters) > 0 {
			n++
		}
	}
	return n
}
