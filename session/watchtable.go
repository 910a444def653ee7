package session

import (
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// watches is the table of the session's watches: one of a kind for each path, however many wait for it. The server has the
// same watches as the table: one that no call needs any more is taken away there by a removeWatches request, and after a
// reconnection the new server is told of those that are left. So neither side grows with the number of past waits.
//
// To which watch a notification belongs follows from the order of frames. Requests and replies of a conn are strictly in
// order, and the hook of a reply runs before the next frame is read; so a notification that is read before the reply to our
// request belongs to an earlier watch, and one that is read after it to this one. There is one exception: of znodes that are
// gone already, ZooKeeper notifies before the reply to setWatches, ClickHouse Keeper right after it; see wakeLocked.
type watches struct {
	s *Session

	mu           sync.Mutex // guards what follows; never held together with Session.mu, and outside conn.mu
	conn         *conn
	conns        uint64 // how many there have been: the number of conn
	byPath       map[watchKey]*watched
	list         watchList // of byPath's, in the order in which a new conn's server is asked for them
	noSetWatches bool      // the server does not know the request
}

// watchKey is a path, as the server knows it, and what of it is watched: the znode, or the list of its children.
type watchKey struct {
	path  string
	child bool
}

// watched is one path with the Watches that wait for it.
type watched struct {
	watchKey
	newer, older *watched // in the list
	waiters      []*Watch // in the order in which they came
	belief       belief
	gone         bool          // believed present, the znode was reported deleted, before the reply
	armed        bool          // the server has answered: exists and err are set
	conn         uint64        // the number of the conn on which it has
	exists       bool          // the znode existed when the watch was set
	err          error         // the watch can't be set
	ready        chan struct{} // closed when armed; nil: no call waits for that
}

// belief is what the first Watch of a znode says that its caller last saw: whether the znode existed.
type belief uint8

const (
	noBelief        belief = iota
	believedPresent        // see WatchAll
	believedAbsent         // see WatchAllAndCreation
)

func newWatches(s *Session) *watches { return &watches{s: s, byPath: map[watchKey]*watched{}} }

// closeLocked is Close.
func (ws *watches) closeLocked(w *Watch) {
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
		// Nothing is at the server; should a list with a watch still be answered, its hook takes that away.
		ws.dropLocked(w.t)
	} // else its hook, or restore, drops it when it finds no Watch waiting
}

// add has w wait for key, and asks the server if it has not been asked.
func (ws *watches) add(key watchKey, w *Watch, b belief) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if t, ask := ws.joinLocked(key, w, b); ask {
		ws.armLocked(t)
	}
}

// joinLocked adds w to the Watches that wait for key; the first of them brings the belief. ask: the caller has to ask the
// server; else the server has been asked, or restore will ask it.
func (ws *watches) joinLocked(key watchKey, w *Watch, b belief) (t *watched, ask bool) {
	t = ws.byPath[key]
	if t == nil {
		t = &watched{watchKey: key, belief: b}
		ws.byPath[key] = t
		ask = ws.list.add(t, ws.conn == nil)
	}
	t.waiters = append(t.waiters, w)
	w.t = t
	return t, ask
}

// dropLocked takes t off the table.
func (ws *watches) dropLocked(t *watched) {
	if ws.byPath[t.watchKey] == t {
		delete(ws.byPath, t.watchKey)
		ws.list.remove(t)
	}
}

// armLocked asks the server to watch t. There is a conn.
func (ws *watches) armLocked(t *watched) {
	if t.child { // WatchChildren sends the list with the watch itself
		return
	}
	op := opExists
	if ws.conn.unresumable && t.belief == believedPresent {
		op = opGetData // leaves no watch if there is no znode: it could not be taken away
	}
	ws.askLocked(t, op)
}

// askLocked asks the server to watch t by exists or getData.
func (ws *watches) askLocked(t *watched, op int32) {
	r := &request{op: op, name: "watch", path: t.path, repeatable: true}
	r.frame = appendBool(appendString(appendHeader(make([]byte, 0, 32+len(t.path)), op), t.path), true)
	c := ws.conn
	r.hook = func(code int32) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		switch {
		case ws.conn != c: // the next conn has asked again, and its reply counts
		case op == opGetData && code == codeNoAuth:
			ws.askLocked(t, opExists)
		default:
			ws.setLocked(t, code)
		}
	}
	ws.conn.enqueue(r)
}

// ready returns a channel that is closed when the server has answered for t; nil: it has.
func (ws *watches) ready(t *watched) <-chan struct{} {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !t.armed && t.ready == nil {
		t.ready = make(chan struct{})
	}
	return t.ready
}

// setLocked takes the server's answer for t.
func (ws *watches) setLocked(t *watched, code int32) {
	t.armed, t.conn = true, ws.conns
	switch code {
	case codeOK:
		t.exists = !t.gone && t.belief != believedAbsent
	case codeNoNode:
		t.gone = t.belief == believedPresent
		ws.s.ephemerals.deleted(ws.s.strip(t.path))
	default:
		t.err = errOf(code)
	}
	if t.ready != nil {
		close(t.ready)
		t.ready = nil
	}
	switch {
	case t.err != nil:
		ws.dropLocked(t)
	case t.gone:
		if code == codeNoNode { // of exists, which has left a watch for its creation
			ws.takeAwayLocked(t.watchKey)
		}
		ws.fireLocked(t, zk.EventNodeDeleted, 0) // Then has not been called yet
	case len(t.waiters) == 0:
		ws.removeLocked(t)
	}
}

// listed is the hook of the reply to a list with a watch.
func (ws *watches) listed(t *watched, code int32) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	current := ws.byPath[t.watchKey]
	switch {
	case code != codeOK: // the server has set nothing
		if current == t && !t.armed && len(t.waiters) <= 1 {
			ws.dropLocked(t)
		}
	case current == nil: // an earlier watch of the same kind has fired since we asked: no Watch waits for this one
		ws.takeAwayLocked(t.watchKey)
	case len(current.waiters) == 0:
		ws.removeLocked(current)
	default:
		current.armed, current.conn = true, ws.conns
	}
}

// removeLocked takes an armed watch off the table and off the server.
func (ws *watches) removeLocked(t *watched) {
	ws.dropLocked(t)
	ws.takeAwayLocked(t.watchKey)
}

// takeAwayLocked takes a watch off the server.
func (ws *watches) takeAwayLocked(t watchKey) {
	if ws.conn == nil || ws.conn.unresumable {
		return // the server forgot it with the connection, or may not know the request
	}
	kind := int32(dataWatcher)
	if t.child {
		kind = childWatcher
	}
	r := &request{op: opRemoveWatches, name: "remove watch", path: t.path, repeatable: true}
	r.frame = appendInt(appendString(appendHeader(make([]byte, 0, 32+len(t.path)), opRemoveWatches), t.path), kind)
	ws.conn.enqueue(r) // no reply is waited for: "no such watch" says that it has just fired
}

// The server's types of watches: set by getChildren, and by exists and getData.
const (
	childWatcher = 1
	dataWatcher  = 2
)

// fire delivers a notification that c has read, of what happened at zxid. False: c is not in use any more, and no Watch was
// fired: the next conn sets the watches again, as of before this notification.
func (ws *watches) fire(c *conn, event zk.EventType, path string, zxid int64) bool {
	ws.mu.Lock()
	current := ws.conn == c
	var then []*Watch
	switch {
	case !current:
	case event == zk.EventNodeDeleted: // one notification for both kinds
		then = append(ws.wakeLocked(watchKey{path, false}, event, zxid), ws.wakeLocked(watchKey{path, true}, event, zxid)...)
	case event == zk.EventNodeCreated, event == zk.EventNodeDataChanged:
		then = ws.wakeLocked(watchKey{path, false}, event, zxid)
	case event == zk.EventNodeChildrenChanged:
		then = ws.wakeLocked(watchKey{path, true}, event, zxid)
	} // others are of no watch of ours
	ws.mu.Unlock()
	ws.callBack(then)
	return current
}

// callBack has the functions of those watches that have one called. The caller does not hold mu: spawn takes Session.mu.
func (ws *watches) callBack(then []*Watch) {
	for _, w := range then {
		ws.s.spawn(func() { w.then(w.event) })
	}
}

// wakeLocked fires the Watches that wait for key, and returns those that have a function to be called.
func (ws *watches) wakeLocked(key watchKey, event zk.EventType, zxid int64) (then []*Watch) {
	switch t := ws.byPath[key]; {
	case t == nil: // of a watch that was given up
	case t.armed:
		return ws.fireLocked(t, event, zxid)
	case t.belief == believedPresent && event == zk.EventNodeDeleted:
		t.gone = true // setWatches found it gone and says so before its reply: setLocked fires the watch
	}
	return nil
}

// fireLocked ends t with event, which happened at zxid, as far as is known.
func (ws *watches) fireLocked(t *watched, event zk.EventType, zxid int64) (then []*Watch) {
	ws.dropLocked(t)
	for _, w := range t.waiters {
		w.fireLocked(event, zxid, ws.conns)
		if w.then != nil {
			then = append(then, w)
		}
	}
	t.waiters = nil
	return then
}

// attach makes c the conn of the table, unless c has failed already: then a later one may have been attached.
func (ws *watches) attach(c *conn) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if c.failure() != nil {
		return false
	}
	ws.conn = c
	ws.conns++
	ws.noSetWatches = ws.noSetWatches || c.unresumable
	ws.list.askAgain()
	return true
}

// detach takes c, which has failed, out of use.
func (ws *watches) detach(c *conn) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.conn == c {
		ws.conn = nil
		ws.list.askAgain()
	}
}

// restore asks the server of c, which is attached, for the watches of the table. Those that were set are set again
// as of zxid, the latest that we have seen, so that the server reports at once what has changed since; the others are
// asked for anew. The newest come first, as WatchAll has them. It goes a step at a time, between which others have the
// table.
func (ws *watches) restore(c *conn, zxid int64) {
	for more := true; more; {
		var fired []*Watch
		fired, more = ws.restoreStep(c, zxid)
		ws.callBack(fired)
	}
}

// restoreStep asks for as many watches as one request takes.
func (ws *watches) restoreStep(c *conn, zxid int64) (fired []*Watch, more bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var again, believed []*watched
	for size := 0; ws.conn == c && ws.list.unasked != nil && size < setWatchesMax; {
		t := ws.list.unasked
		ws.list.unasked = t.older
		size += watchBytes + len(t.path)
		switch {
		case !t.armed && len(t.waiters) == 0:
			ws.dropLocked(t) // no Watch waits, and the hook that would have dropped it was lost with the last conn
		case t.armed && ws.tooLong(t): // setWatches can't name it: its waiters look for themselves what has changed
			fired = append(fired, ws.fireLocked(t, zk.EventNodeDataChanged, 0)...)
		case t.armed:
			again = append(again, t)
		case t.belief != noBelief:
			t.gone = false
			believed = append(believed, t)
		default:
			ws.armLocked(t)
		}
	}
	if ws.conn != c {
		return fired, false
	}
	ws.setWatchesLocked(again, zxid, func(ts []*watched, code int32) {
		switch code {
		case codeOK:
		case codeUnimplemented:
			ws.suspect(c, ts)
		default: // else no Watch would ever fire
			c.fail(fmt.Errorf("watches not restored: %w", errOf(code)))
		}
	})
	ws.armAllLocked(believed)
	return fired, ws.list.unasked != nil
}

// suspect fires the Watches that wait for ts, of which the server can't say what has changed: their callers will look.
func (ws *watches) suspect(c *conn, ts []*watched) {
	var then []*Watch
	ws.mu.Lock()
	ws.noSetWatches = true
	for _, t := range ts {
		if ws.conn != c || ws.byPath[t.watchKey] != t {
			continue
		}
		event := zk.EventNodeDataChanged
		if t.child {
			event = zk.EventNodeChildrenChanged
		}
		then = append(then, ws.fireLocked(t, event, 0)...)
	}
	ws.mu.Unlock()
	ws.callBack(then)
}
