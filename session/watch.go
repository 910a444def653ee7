package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// watches is the table of the session's watches: one of a kind for each path, however many wait for it. What stands in
// the table stands at the server: a watch that nobody wants any more is taken away there by a removeWatches request,
// and after a reconnection the new server is told of those that are left. So neither side grows with the number of
// past waits.
//
// Order does the rest. Requests and replies of a link are strictly in order, and the hook of a reply runs before the
// next frame is read; so a notification that is read before the reply to our request belongs to an earlier watch, and
// one that is read after it to this one. But for one thing: a setWatches request is told of the znodes that are gone
// before its reply, by ClickHouse Keeper right after it; see wakeLocked.
type watches struct {
	s *Session

	mu     sync.Mutex // guards what follows; taken inside Session.mu and outside link.mu
	link   *link
	links  uint64 // how many there have been: the number of link
	byPath map[watchKey]*watched
	count  uint64 // of those that ever were in byPath
	plain  bool   // the server has no setWatches
}

// watchKey is a path, as the server knows it, and what of it is watched: the znode, or the list of its children.
type watchKey struct {
	path  string
	child bool
}

// watched is one path that somebody watches.
type watched struct {
	watchKey
	number  uint64        // in the order of their first waiters
	waiters []*Watch      // in the order in which they came
	stands  bool          // it is believed to exist: see WatchAll
	gone    bool          // and was reported deleted instead, before the reply
	armed   bool          // the server has answered: exists and err are set
	link    uint64        // the number of the link on which it has
	exists  bool          // the znode stood when the watch was set
	err     error         // the watch can't be set
	ready   chan struct{} // closed when armed
}

// Watch is one waiter for a change of one znode. It fires once.
type Watch struct {
	t     *watched
	s     *Session
	fired chan struct{}
	event zk.EventType // set before fired is closed
	link  uint64       // the number of the link that told it; guarded by watches.mu, as are those that follow
	then  func(zk.EventType)
	wake  chan<- struct{}
	// Exists says whether the znode stood when the watch was set. A watch that was shared with an earlier waiter was
	// set then, and has not fired since.
	Exists bool
}

func newWatches(s *Session) *watches { return &watches{s: s, byPath: map[watchKey]*watched{}} }

// Watch sets an exists-watch on path: one request, or none when the session watches path already. The watch fires when
// the znode is created, deleted, or its data are set; it lasts across connections, and Close takes it away. The znode
// needs no permission for it.
//
// It blocks until the watch is set, and returns an error, with nothing left behind, when ctx or the session ends first.
func (s *Session) Watch(ctx context.Context, path string) (*Watch, error) {
	if err := checkNamed(path); err != nil {
		return nil, err
	}
	for {
		w := newWatch(s)
		s.watches.add(watchKey{s.join(path), false}, w)
		if err := w.set(ctx); err != nil {
			w.Close()
			return nil, &OpError{Op: "watch", Path: path, Err: err}
		}
		if !w.t.gone { // else it was asked for by a WatchAll, and nothing waits for the znode to be created
			return w, nil
		}
	}
}

func newWatch(s *Session) *Watch { return &Watch{s: s, fired: make(chan struct{})} }

// set waits until the server has answered.
func (w *Watch) set(ctx context.Context) error {
	s := w.s
	select {
	case <-w.t.ready:
	default: // not there yet: only now is the end of ctx a reason to stop
		select {
		case <-w.t.ready:
		case <-s.ctx.Done():
			return s.Err()
		case <-ctx.Done():
			if s.State() != Connected {
				return Waited(ctx, s.why())
			}
			return Waited(ctx, errors.New("waiting for the watch to be set"))
		}
	}
	w.Exists = w.t.exists
	return w.t.err
}

// Fired is closed when the watch has fired. It does not fire at the end of the session: see Session.Done.
func (w *Watch) Fired() <-chan struct{} { return w.fired }

// Event returns what happened: created, deleted, or data changed. Valid once Fired is closed.
func (w *Watch) Event() zk.EventType { return w.event }

// Close gives up the watch; the last one for its path takes it away at the server, without waiting for that. It may be
// called more than once, before and after the watch has fired.
func (w *Watch) Close() {
	ws := w.s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closeLocked(w)
}

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
		ws.remove(w.t)
	case w.t.child, ws.link == nil:
		// Nothing is at the server; should a list with a watch still be answered, its hook takes that away.
		delete(ws.byPath, w.t.watchKey)
	} // else its hook will find nobody waiting
}

// add enters w for key, and asks the server when nobody has.
func (ws *watches) add(key watchKey, w *Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if t, fresh := ws.enterLocked(key, w); fresh {
		ws.armLocked(t)
	}
}

// enterLocked enters w for key. fresh: the server has not been asked for that yet.
func (ws *watches) enterLocked(key watchKey, w *Watch) (t *watched, fresh bool) {
	t = ws.byPath[key]
	if fresh = t == nil; fresh {
		ws.count++
		t = &watched{watchKey: key, number: ws.count, ready: make(chan struct{})}
		ws.byPath[key] = t
	}
	t.waiters = append(t.waiters, w)
	w.t = t
	return t, fresh
}

// armLocked asks the server to watch t. Without a link, restore will ask.
func (ws *watches) armLocked(t *watched) {
	if ws.link == nil || t.child { // a list with a watch is somebody's own request: see WatchChildren
		return
	}
	c := &call{op: opExists, name: "watch", path: t.path, read: true}
	c.frame = appendBool(appendString(appendHeader(make([]byte, 0, 32+len(t.path)), opExists), t.path), true)
	l := ws.link
	c.hook = func(code int32) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.link == l { // else the next link has asked again, and its reply counts
			ws.setLocked(t, code)
		}
	}
	ws.link.enqueue(c)
}

// setLocked takes the server's answer for t.
func (ws *watches) setLocked(t *watched, code int32) {
	t.armed, t.link = true, ws.links
	switch code {
	case codeOK:
		t.exists = !t.gone
	case codeNoNode:
		t.gone = t.stands
		ws.s.ephemerals.deleted(int32(zk.EventNodeDeleted), ws.s.strip(t.path))
	default:
		t.err = errOf(code)
	}
	close(t.ready)
	switch {
	case t.err != nil:
		delete(ws.byPath, t.watchKey)
	case t.gone:
		if code == codeNoNode { // of exists, which has left a watch for its creation
			ws.takeAway(t.watchKey)
		}
		ws.fireLocked(t, zk.EventNodeDeleted) // nobody wants to be called yet
	case len(t.waiters) == 0:
		ws.remove(t)
	}
}

// remove takes an armed watch off the table and off the server. The caller holds mu.
func (ws *watches) remove(t *watched) {
	delete(ws.byPath, t.watchKey)
	ws.takeAway(t.watchKey)
}

// takeAway takes a watch off the server. The caller holds mu.
func (ws *watches) takeAway(t watchKey) {
	if ws.link == nil {
		return // the server forgot it with the connection
	}
	kind := int32(dataWatcher)
	if t.child {
		kind = childWatcher
	}
	c := &call{op: opRemoveWatches, name: "remove watch", path: t.path, read: true}
	c.frame = appendInt(appendString(appendHeader(make([]byte, 0, 32+len(t.path)), opRemoveWatches), t.path), kind)
	ws.link.enqueue(c) // no reply is waited for: "no such watch" says that it has just fired
}

// The server's types of watches: set by getChildren, and by exists and getData.
const (
	childWatcher = 1
	dataWatcher  = 2
)

// fire delivers a notification that l has read. False: l is not in use any more, and nobody was told.
func (ws *watches) fire(l *link, typ int32, path string) bool {
	then, ok := ws.take(l, zk.EventType(typ), path)
	ws.call(then)
	return ok
}

// call calls those who want to be. The caller does not hold mu, which is taken inside Session.mu.
func (ws *watches) call(then []*Watch) {
	for _, w := range then {
		ws.s.spawn(func() { w.then(w.event) })
	}
}

// take wakes those who wait for path, and returns those who want to be called. False: as for fire.
func (ws *watches) take(l *link, event zk.EventType, path string) (then []*Watch, ok bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.link != l {
		return nil, false // the next link sets the watches again, as of before this notification
	}
	switch event {
	case zk.EventNodeDeleted: // one notification for both kinds
		then = append(ws.wakeLocked(watchKey{path, false}, event), ws.wakeLocked(watchKey{path, true}, event)...)
	case zk.EventNodeCreated, zk.EventNodeDataChanged:
		then = ws.wakeLocked(watchKey{path, false}, event)
	case zk.EventNodeChildrenChanged:
		then = ws.wakeLocked(watchKey{path, true}, event)
	} // others are of no watch of ours
	return then, true
}

// wakeLocked is take for one kind.
func (ws *watches) wakeLocked(key watchKey, event zk.EventType) (then []*Watch) {
	switch t := ws.byPath[key]; {
	case t == nil: // of a watch that was given up
	case t.armed:
		return ws.fireLocked(t, event)
	case t.stands && event == zk.EventNodeDeleted:
		t.gone = true // what setWatches finds gone is told before its reply, and counts from the reply on
	}
	return nil
}

// fireLocked ends t with event.
func (ws *watches) fireLocked(t *watched, event zk.EventType) (then []*Watch) {
	delete(ws.byPath, t.watchKey)
	for _, w := range t.waiters {
		w.event, w.link = event, ws.links
		close(w.fired)
		poke(w.wake)
		if w.then != nil {
			then = append(then, w)
		}
	}
	t.waiters = nil
	return then
}

// detach notes that the link is gone.
func (ws *watches) detach() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.link = nil
	for key, t := range ws.byPath {
		if !t.armed && len(t.waiters) == 0 {
			delete(ws.byPath, key) // its hook would have found nobody waiting, and will not run any more
		}
	}
}

// restore attaches the table to a new link. The watches that were set are set again as of zxid, the latest that we
// have seen, so that the server reports at once what has changed since; the others are asked for anew. The newest come
// first, as WatchAll has them.
func (ws *watches) restore(l *link, zxid int64) {
	var then []*Watch
	defer func() {
		if len(then) > 0 {
			go ws.call(then) // the caller holds Session.mu
		}
	}()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.link = l
	ws.links++
	var again, stand []*watched
	for _, t := range slices.SortedFunc(maps.Values(ws.byPath), func(a, b *watched) int {
		return cmp.Compare(b.number, a.number)
	}) {
		switch {
		case t.armed && ws.tooLong(t): // the server can't be asked what has changed: they will look
			then = append(then, ws.fireLocked(t, zk.EventNodeDataChanged)...)
		case t.armed:
			again = append(again, t)
		case t.stands:
			t.gone = false
			stand = append(stand, t)
		default:
			ws.armLocked(t)
		}
	}
	ws.setWatchesLocked(again, zxid, func(ts []*watched, code int32) {
		switch code {
		case codeOK:
		case codeUnimplemented:
			ws.suspect(l, ts)
		default: // nobody would ever be woken
			l.fail(fmt.Errorf("watches not restored: %w", errOf(code)))
		}
	})
	ws.armAllLocked(stand)
}

// suspect wakes those who wait for ts, of which the server can't say what has changed: they will look.
func (ws *watches) suspect(l *link, ts []*watched) {
	var then []*Watch
	ws.mu.Lock()
	ws.plain = true
	for _, t := range ts {
		if ws.link != l || ws.byPath[t.watchKey] != t {
			continue
		}
		event := zk.EventNodeDataChanged
		if t.child {
			event = zk.EventNodeChildrenChanged
		}
		then = append(then, ws.fireLocked(t, event)...)
	}
	ws.mu.Unlock()
	ws.call(then)
}

// Then has fn called, in a goroutine of the session's, when the watch fires; at once when it has fired. It is not
// called when the session ends or the watch is closed first. One fn a watch.
func (w *Watch) Then(fn func(zk.EventType)) {
	ws := w.s.watches
	ws.mu.Lock()
	w.then = fn
	waiting := slices.Contains(w.t.waiters, w)
	ws.mu.Unlock()
	if waiting {
		return
	}
	select {
	case <-w.fired:
		w.s.spawn(func() { fn(w.event) })
	default: // closed
	}
}
