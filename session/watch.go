package session

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// Watch is one waiter for a change of one znode. It fires once.
type Watch struct {
	t *watched
	s *Session

	// Guarded by watches.mu.
	event zk.EventType  // what happened; 0: it has not fired
	fired chan struct{} // of Fired; nil: Fired has not been called, as for most holds
	zxid  int64         // of what happened, if the server has told it
	conn  uint64        // the number of the conn that told it
	then  func(zk.EventType)
	wake  chan<- struct{}

	// Exists says whether the znode existed when the watch was set. A watch that is shared with an earlier waiter was set
	// for that one, and has not fired since.
	Exists bool
}

// Watch sets an exists-watch on path: one request, or none when the session watches path already. The watch fires when
// the znode is created, deleted, or its data are set; it lasts across connections, and Close takes it away. No permission
// on the znode is needed.
//
// It blocks until the watch is set, and returns an error, with nothing left behind, when ctx or the session ends first.
func (s *Session) Watch(ctx context.Context, path string) (*Watch, error) {
	for {
		w, err := s.watch(ctx, path, noBelief)
		if err != nil || !w.t.gone { // else it was asked for by a WatchAll, and nothing waits for the znode to be created
			return w, err
		}
	}
}

// WatchExisting is Watch for a znode that existed when last seen: when it does not, Exists is false, the watch has fired with
// its deletion, and nothing waits for its creation.
func (s *Session) WatchExisting(ctx context.Context, path string) (*Watch, error) {
	w, err := s.watch(ctx, path, believedPresent)
	if err == nil && !w.Exists {
		s.watches.fireMissing(w)
	}
	return w, err
}

// watch watches path by a request of its own.
func (s *Session) watch(ctx context.Context, path string, b belief) (*Watch, error) {
	if err := checkNamed(path); err != nil {
		return nil, err
	}
	w := &Watch{s: s}
	s.watches.add(watchKey{s.join(path), false}, w, b)
	if err := w.set(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// WatchChildren lists a znode's children and watches the list from that moment on: the watch fires when a child is
// made or deleted, or the znode itself is deleted. One request. Otherwise it is like Watch, but for the permission to
// read that the list needs; when there is no such znode, the error matches zk.ErrNoNode.
//
// Contenders that wait in line must not use it: every change would wake them all. It is for the one contender that has to
// see every change.
func (s *Session) WatchChildren(ctx context.Context, path string) (*Watch, []string, zk.Stat, error) {
	if err := checkNamed(path); err != nil {
		return nil, nil, zk.Stat{}, err
	}
	key := watchKey{s.join(path), true}
	w := &Watch{s: s}
	s.watches.add(key, w, noBelief)
	list := s.list(path, true)
	list.r.hook = func(code int32) { s.watches.listed(w.t, code) }
	c, err := one(ctx, s, list)
	if err != nil {
		w.Close()
		return nil, nil, zk.Stat{}, err
	}
	w.Exists = true
	return w, c.Names, c.Stat, nil
}

// set waits until the server has answered.
func (w *Watch) set(ctx context.Context) error {
	s, err := w.s, error(nil)
	if ready := s.watches.ready(w.t); ready != nil { // not there yet: only now is the end of ctx a reason to stop
		select {
		case <-ready:
		case <-s.ctx.Done():
			err = s.Err()
		case <-ctx.Done():
			what := errors.New("waiting for the watch to be set")
			if s.State() != Connected {
				what = s.waitingFor()
			}
			err = waited(ctx, what)
		}
	}
	if err == nil {
		w.Exists, err = w.t.exists, w.t.err
	}
	if err != nil {
		return &OpError{Op: "watch", Path: s.strip(w.t.path), Err: err}
	}
	return nil
}

// Fired is closed when the watch has fired. It does not fire at the end of the session: see Session.Done.
func (w *Watch) Fired() <-chan struct{} {
	ws := w.s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.fired == nil {
		w.fired = make(chan struct{})
		if w.event != 0 {
			close(w.fired)
		}
	}
	return w.fired
}

// Event returns what happened: created, deleted, or data changed; 0 while the watch has not fired.
func (w *Watch) Event() zk.EventType {
	ws := w.s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.event
}

// fireLocked ends w with event.
func (w *Watch) fireLocked(event zk.EventType, zxid int64, conn uint64) {
	w.event, w.zxid, w.conn = event, zxid, conn
	if w.fired != nil {
		close(w.fired)
	}
	poke(w.wake)
}

// Close gives up the watch; the last one for its path takes it away at the server, without waiting for that. It may be
// called more than once, before and after the watch has fired.
func (w *Watch) Close() {
	ws := w.s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closeLocked(w)
}

// Then calls fn, in a goroutine of the session's, when the watch fires; at once if it has fired. It is not called when
// the session ends or the watch is closed first. A watch has one fn.
func (w *Watch) Then(fn func(zk.EventType)) {
	ws := w.s.watches
	ws.mu.Lock()
	w.then = fn
	event := w.event
	ws.mu.Unlock()
	if event != 0 {
		w.s.spawn(func() { fn(event) })
	}
}
