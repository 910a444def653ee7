package watch

import (
	"container/list"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Table is the table of the session's watches: for each path one of a kind, however many Watches
// wait for it. The server has the same watches: one that no call needs any more is removed there by
// removeWatches, and after a reconnection the new server is asked for those that are left. So
// neither side grows with the number of past waits.
//
// # Which watch an event belongs to
//
// The order of frames tells. Requests and replies of a conn are strictly in order, and a reply's
// hook runs before the next frame is read. So a notification that is read before the reply to our
// request belongs to an earlier watch, and one that is read after it to this one. There is one
// exception: if setWatches finds that a znode is not as it was believed to be, the server notifies
// before its reply (see deliverLocked).
//
// # The order of requests
//
// A server checks znodes in the order of the requests to watch them, and at once reports each one
// that is gone. A caller of AddAll wants to hear of the first of its paths, its own znodes, no
// later than of the others: a deletion of its own znode must not be reported behind that of a znode
// that was deleted later. So the order of paths is the order of requests, on every server:
//
//  1. AddAll enlists its paths from the last one to the first.
//  2. watchList.add puts each of them in front of all watches for which the server has not been
//     asked. So paths are listed in their order, and in front of what the server has not been
//     asked for.
//  3. If the server is to be asked at once, AddAll asks in the order of paths, and askAllLocked and
//     setWatchesLocked keep that order.
//  4. Otherwise, and on every later server, Restore takes them in the order of the list, some at a
//     time. Of these it asks first for those of which nothing is known (exists), then sets the
//     armed ones again, and then asks for the others.
//
// Two kinds of watches have another place: a path that fits in no setWatches request is asked for
// first, and a Watch that joins one of the table has that one's place. Watch.ExistedWhen, which
// compares two watches, is right about them too: see there for what it demands.
type Table struct {
	juteMaxBuffer int
	spawn         func(fn func()) bool // runs fn in a goroutine of the session
	missing       func(path string)    // told that a znode does not exist

	mu     sync.Mutex // guards what follows; outside the session's and a conn's
	conn   *link.Conn // the conn in use, or nil
	conns  uint64     // the number of the latest conn: how many there have been
	told   int64      // up to this zxid servers have told us of all events: see Answered
	asked  int        // setWatches requests of Restore that conn has not answered
	byPath map[watchKey]*watched
	list   watchList // those of byPath
}

// watchKey is a path, with the chroot, and what of it is watched: the znode, or the list of its
// children.
type watchKey struct {
	path  string
	child bool
}

// watched is one watch of the table, with the Watches that wait for it.
//
// It is armed when the server has answered the request that sets it. It stays armed when the
// connection is lost: the next server is asked to set it again. It leaves the table when it fires,
// when it can't be set, and when no Watch waits for it any more.
type watched struct {
	watchKey
	place   *list.Element // in Table.list
	waiters []*Watch      // in the order in which they came
	belief  belief
	armed   bool
	ready   chan struct{} // closed when armed; nil if no call waits for that

	// Set when the watch is armed, and not when a later server sets it again.
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
	believedPresent        // in AddAll: one of paths
	believedAbsent         // in AddAll: absent
)

// New returns an empty table. spawn runs a function in a goroutine of the session, unless that is
// over. missing is told, under the table's mutex, the path of a znode that does not exist.
func New(juteMaxBuffer int, spawn func(fn func()) bool, missing func(path string)) *Table {
	return &Table{juteMaxBuffer: juteMaxBuffer, spawn: spawn, missing: missing,
		byPath: map[watchKey]*watched{}}
}

// Add returns a Watch of path or, with child, of its children. It asks the server to watch path, if
// no other Watch does. It does not ask for the children: the caller's list does (Listed).
func (ws *Table) Add(path string, child bool) *Watch {
	key := watchKey{path, child}
	ws.mu.Lock()
	w, ask := ws.enlistLocked(key, noBelief)
	if ask {
		ws.askLocked(w.t)
	}
	c := ws.conn
	ws.mu.Unlock()
	if ask {
		c.Flush()
	}
	return w
}

// AddAll returns a Watch of each of paths and, behind them, one of absent, unless that is "". It
// asks the server to watch what is new to it. Each of paths is believed to exist, and absent not
// to. If absent exists, its Watch may never fire, nor any that joins it: so nothing else may watch
// that path. See "The order of requests" at Table.
func (ws *Table) AddAll(paths []string, absent string) []*Watch {
	ws.mu.Lock()
	all, toFlush := ws.addAllLocked(paths, absent)
	c := ws.conn
	ws.mu.Unlock()
	if toFlush {
		c.Flush()
	}
	return all
}

// addAllLocked is AddAll, but the caller flushes the conn, without the mutex, if there is something
// toFlush.
func (ws *Table) addAllLocked(paths []string, absent string) (all []*Watch, toFlush bool) {
	all = make([]*Watch, len(paths), len(paths)+1)
	toAsk := make([]*watched, 0, len(paths)+1)
	enlist := func(path string, b belief) *Watch {
		w, ask := ws.enlistLocked(watchKey{path, false}, b)
		if ask {
			toAsk = append(toAsk, w.t)
		}
		return w
	}
	if absent != "" {
		all = append(all, enlist(absent, believedAbsent))
	}
	for i, path := range slices.Backward(paths) { // each goes in front of the one before
		all[i] = enlist(path, believedPresent)
	}
	slices.Reverse(toAsk) // in the order of paths: see "The order of requests" at Table
	ws.askAllLocked(toAsk)
	return all, len(toAsk) > 0
}

// enlistLocked adds a Watch of key. b counts only if no other Watch of key is in the table. ask
// reports whether the caller has to ask the server. If not, it has been asked, or Restore will ask
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

// dropLocked removes t from the table. The server keeps its watch, if it has one.
func (ws *Table) dropLocked(t *watched) {
	if ws.byPath[t.watchKey] == t {
		delete(ws.byPath, t.watchKey)
		ws.list.remove(t)
	}
}

// takeAnswerLocked notes the code with which the server has answered the request for t, an exists
// or setWatches request, and does what follows from it:
//
//   - t can't be set: it leaves the table, and its waiters learn why from Watch.Settle;
//   - t's znode was believed present and is gone: t fires;
//   - no Watch waits for t any more: it is removed.
//
// setWatches answers OK in any case: what it found otherwise than we believed, it has reported
// before (deliverLocked). exists answers OK if there is a znode.
func (ws *Table) takeAnswerLocked(t *watched, code int32) {
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
			ws.unsetLocked(t.watchKey)
		}
	case t.gone:
		if code == wire.CodeNoNode { // exists has left a watch for the znode's creation
			ws.unsetLocked(t.watchKey)
		}
		ws.fireLocked(t, zk.EventNodeDeleted, 0)
	case len(t.waiters) == 0:
		ws.removeLocked(t)
	}
}

// Listed is the hook of the list by which WatchChildren sets w's watch.
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
		ws.unsetLocked(t.watchKey)
	default:
		current.armed, current.conn = true, ws.conns
	}
}

// closeLocked removes w from the Watches that wait. If w was the last one of its path, the watch
// goes too, as soon as that is possible:
//
//   - an armed one at once, from the table and the server;
//   - while there is no server, one that is not armed, at once from the table;
//   - one that a list of children may still set, at once from the table. If the list sets it, the
//     list's hook (Listed) removes it from the server;
//   - any other, when the request that sets it has been answered (takeAnswerLocked), or by Restore,
//     if that request was not sent yet or was lost with the connection.
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
		ws.dropLocked(w.t)
	}
}

// removeLocked removes an armed watch from the table and the server.
func (ws *Table) removeLocked(t *watched) {
	ws.dropLocked(t)
	ws.unsetLocked(t.watchKey)
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
		ws.deliverLocked(watchKey{path, false}, event, zxid)
		ws.deliverLocked(watchKey{path, true}, event, zxid)
	case zk.EventNodeCreated, zk.EventNodeDataChanged:
		ws.deliverLocked(watchKey{path, false}, event, zxid)
	case zk.EventNodeChildrenChanged:
		ws.deliverLocked(watchKey{path, true}, event, zxid)
	} // no watch of ours has other events
	return true
}

// deliverLocked delivers an event to one watch. If the watch is not armed, the event belongs to an
// earlier watch of the path, with one exception: what setWatches finds otherwise than we believed,
// the server reports before its reply.
//
//   - A znode that was believed present is gone: takeAnswerLocked fires the watch, with that reply.
//   - One that was believed absent exists: the event is dropped, and the server has set no watch.
//     AddAll's caller is told to expect that.
func (ws *Table) deliverLocked(key watchKey, event zk.EventType, zxid int64) {
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

// Answered notes that c has answered a request, as of zxid. So it has told us of all events of our
// watches up to zxid: it is enough that the next server repeats those after that (told).
//
// told may be less than the zxid that the session has seen, which the handshake names so that a
// server that lags behind refuses it. Two things that we see do not count for told:
//
//   - a notification's zxid: the server may have told us of one event of a transaction, and not of
//     the next;
//   - what a server answers before Restore's requests: it does not have our watches yet.
//
// ZooKeeper's own client does not count notifications either, and lets no request overtake its
// setWatches.
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
	ws.list.restart()
	return true
}

// Detach takes c out of use. If it is the table's conn, there is none until the next Attach.
func (ws *Table) Detach(c *link.Conn) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.conn == c {
		ws.conn = nil
		ws.list.restart()
	}
}

// Restore asks the server of c, which is attached, for the watches of the table, in the order of
// the list: see "The order of requests" at Table. Armed ones are set again as of told, so that the
// server reports at once what has changed since. The others are asked for as if for the first time.
//
// Each call asks for some of them, and more says that another call is needed: in between, others
// can use the table. The requests are written when the caller has opened c.
func (ws *Table) Restore(c *link.Conn) (more bool) {
	defer c.Flush() // run, which calls Restore, finds wake filled when it begins to write
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.conn != c {
		return false
	}
	again, believed := ws.nextUnaskedLocked()
	ws.setAgainLocked(again)
	ws.askAllLocked(believed)
	return ws.list.unasked != nil
}

// setAgainLocked asks the server to set armed watches again, as of told. Until it has answered, its
// other answers do not count for told. If it refuses, no Watch would ever fire, so the conn fails.
func (ws *Table) setAgainLocked(armed []*watched) {
	c := ws.conn
	ws.asked += ws.setWatchesLocked(armed, ws.told, func(_ []*watched, code int32) {
		if code != wire.CodeOK {
			c.Fail(fmt.Errorf("watches not restored: %w", failure.Of(code)))
			return
		}
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.conn == c {
			ws.asked--
		}
	})
}

// nextUnaskedLocked takes the next watches for which the server has not been asked, as many as fit
// into a request. It returns the armed ones, which are to be set again, and of the others those of
// which we know whether the znode existed. It disposes of the rest:
//
//   - A watch that is not armed, and for which no Watch waits, is dropped. It was closed before the
//     server was asked or, on the last conn, before the answer: that hook is lost.
//   - An armed watch that fits in no setWatches request fires. Its waiters find out what has
//     changed.
//   - A watch that is not armed, and of which we know nothing, is asked for by exists. That of a
//     list of children is not: its call sends the list again.
func (ws *Table) nextUnaskedLocked() (again, believed []*watched) {
	for size := 0; ws.list.unasked != nil && size < setWatchesMax; {
		t := ws.list.next()
		size += watchBytes + len(t.path)
		switch {
		case !t.armed && len(t.waiters) == 0:
			ws.dropLocked(t)
		case t.armed && !ws.fitsSetWatches(t):
			ws.fireLocked(t, zk.EventNodeDataChanged, 0)
		case t.armed:
			again = append(again, t)
		case t.belief != noBelief:
			t.gone = false
			believed = append(believed, t)
		default:
			ws.askLocked(t)
		}
	}
	return again, believed
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
