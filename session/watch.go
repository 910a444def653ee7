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
// one that is read after it to this one.
type watches struct {
	s *Session

	mu     sync.Mutex // guards what follows; taken inside Session.mu and outside link.mu
	link   *link
	byPath map[watchKey]*watched
	count  uint64 // of those that ever were in byPath
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
	armed   bool          // the server has answered: exists and err are set
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
	then  func(zk.EventType)
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
	w := &Watch{s: s, fired: make(chan struct{})}
	s.watches.add(w, watchKey{s.join(path), false})
	fail := func(err error) (*Watch, error) {
		w.Close()
		return nil, &OpError{Op: "watch", Path: path, Err: err}
	}
	select {
	case <-w.t.ready:
	default: // not there yet: only now is the end of ctx a reason to stop
		select {
		case <-w.t.ready:
		case <-s.ctx.Done():
			return fail(s.Err())
		case <-ctx.Done():
			if s.State() != Connected {
				return fail(Waited(ctx, s.why()))
			}
			return fail(Waited(ctx, errors.New("waiting for the watch to be set")))
		}
	}
	if w.t.err != nil {
		return fail(w.t.err)
	}
	w.Exists = w.t.exists
	return w, nil
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

// add enters w for path, and asks the server when nobody has.
func (ws *watches) add(w *Watch, key watchKey) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	t := ws.byPath[key]
	if t == nil {
		ws.count++
		t = &watched{watchKey: key, number: ws.count, ready: make(chan struct{})}
		ws.byPath[key] = t
		ws.arm(t)
	}
	t.waiters = append(t.waiters, w)
	w.t = t
}

// arm asks the server to watch t. The caller holds mu. Without a link, restore will ask.
func (ws *watches) arm(t *watched) {
	if ws.link == nil || t.child { // a list with a watch is somebody's own request: see WatchChildren
		return
	}
	c := &call{op: opExists, name: "watch", path: t.path, read: true}
	c.frame = appendBool(appendString(appendHeader(make([]byte, 0, 32+len(t.path)), opExists), t.path), true)
	c.hook = func(code int32) { ws.set(t, code) }
	ws.link.enqueue(c)
}

// set is the hook of arm's reply.
func (ws *watches) set(t *watched, code int32) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	t.armed = true
	switch code {
	case codeOK:
		t.exists = true
	case codeNoNode:
	default:
		t.err = errOf(code)
		if ws.byPath[t.watchKey] == t {
			delete(ws.byPath, t.watchKey)
		}
	}
	close(t.ready)
	// Else the link has gone down meanwhile, and what stands there is somebody else's.
	if len(t.waiters) == 0 && t.err == nil && ws.byPath[t.watchKey] == t {
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

// fire delivers a notification.
func (ws *watches) fire(typ int32, path string) {
	for _, w := range ws.take(typ, path) {
		ws.s.spawn(func() { w.then(w.event) })
	}
}

// take wakes those who wait for path, and returns those who want to be called.
func (ws *watches) take(typ int32, path string) (then []*Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch zk.EventType(typ) {
	case zk.EventNodeDeleted: // one notification for both kinds
		return append(ws.wake(typ, watchKey{path, false}), ws.wake(typ, watchKey{path, true})...)
	case zk.EventNodeCreated, zk.EventNodeDataChanged:
		return ws.wake(typ, watchKey{path, false})
	case zk.EventNodeChildrenChanged:
		return ws.wake(typ, watchKey{path, true})
	}
	return nil // of no watch of ours
}

// wake is take for one kind. The caller holds mu.
func (ws *watches) wake(typ int32, key watchKey) (then []*Watch) {
	t := ws.byPath[key]
	if t == nil || !t.armed {
		return nil // of a watch that was given up
	}
	delete(ws.byPath, key)
	for _, w := range t.waiters {
		w.event = zk.EventType(typ)
		close(w.fired)
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

// setWatchesMax bounds one setWatches request: the server's packet limit may be below its default of 1 MB.
const setWatchesMax = 128 << 10

// restore attaches the table to a new link. The watches that were set are set again as of zxid, the latest that we
// have seen, so that the server reports at once what has changed since; the others are asked for anew.
func (ws *watches) restore(l *link, zxid int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.link = l
	var data, exist, child []string
	size := 0
	flush := func() {
		if len(data)+len(exist)+len(child) == 0 {
			return
		}
		b := appendHeader(make([]byte, 0, size+64), opSetWatches)
		b = appendInt(appendInt(b, int32(zxid>>32)), int32(zxid))
		b = appendStrings(appendStrings(appendStrings(b, data), exist), child)
		l.enqueue(&call{op: opSetWatches, name: "set watches", read: true, frame: b, hook: func(code int32) {
			if code != codeOK { // nobody would ever be woken
				l.fail(fmt.Errorf("watches not restored: %w", errOf(code)))
			}
		}})
		data, exist, child, size = nil, nil, nil, 0
	}
	for _, t := range slices.SortedFunc(maps.Values(ws.byPath), func(a, b *watched) int {
		return cmp.Compare(a.number, b.number)
	}) {
		switch {
		case !t.armed:
			ws.arm(t)
			continue
		case t.child:
			child = append(child, t.path)
		case t.exists:
			data = append(data, t.path)
		default:
			exist = append(exist, t.path)
		}
		if size += 4 + len(t.path); size > setWatchesMax {
			flush()
		}
	}
	flush()
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
