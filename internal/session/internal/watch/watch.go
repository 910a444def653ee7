package watch

import "github.com/go-zookeeper/zk"

// Watch waits for a change of one znode. It fires once.
type Watch struct {
	t  *watched
	ws *Table

	// Guarded by Table.mu.
	event zk.EventType // what happened; 0 while the watch has not fired
	zxid  int64        // of the event, if the server has told it, or 0
	conn  uint64       // number of the conn that reported the event
	then  func(zk.EventType)
	wake  chan<- struct{}

	// Exists says whether the znode existed when the watch was set. A watch that is shared with an
	// earlier Watch was set for that one, and has not fired since.
	Exists bool
}

// Path is the watched path, with the chroot.
func (w *Watch) Path() string { return w.t.path }

// Ready returns a channel that is closed when the server has answered the request for w. It returns
// nil if the server has answered already.
func (w *Watch) Ready() <-chan struct{} {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	if !w.t.armed && w.t.ready == nil {
		w.t.ready = make(chan struct{})
	}
	return w.t.ready
}

// Settle sets Exists, or returns why the watch can't be set. It may be called once the server has
// answered: see Ready.
func (w *Watch) Settle() (err error) {
	w.Exists, err = w.t.exists, w.t.err
	return err
}

// Gone reports whether the znode, which was believed present, was gone when the watch was set. Then
// the server does not watch for its creation. It may be called once the server has answered: see
// Ready.
func (w *Watch) Gone() bool { return w.t.gone }

// Event returns what happened: created, deleted, data or children changed; 0 while the watch has
// not fired.
func (w *Watch) Event() zk.EventType {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	return w.event
}

func (w *Watch) fireLocked(event zk.EventType, zxid int64, conn uint64) {
	w.event, w.zxid, w.conn = event, zxid, conn
	signal(w.wake)
	w.callBackLocked()
}

func (w *Watch) callBackLocked() {
	if event, then := w.event, w.then; then != nil {
		w.ws.spawn(func() { then(event) })
	}
}

// Close gives up the watch. If it is the last one on its path, Close removes it from the server,
// without waiting. Close may be called more than once, before and after the watch has fired, and on
// nil.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	w.ws.closeLocked(w)
}

// Then calls fn, in a goroutine of the session, when the watch fires, or at once if it has fired;
// but not if the session ends, or the watch is closed, first. A watch has one fn; nil takes away
// the earlier one, unless it has been called.
func (w *Watch) Then(fn func(zk.EventType)) {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	w.then = fn
	if w.event != 0 {
		w.callBackLocked()
	}
}

// FireMissing fires w, whose znode does not exist, with the znode's deletion. It does nothing if w
// has fired, which is usual. w has not fired if it joined an earlier Watch that found no znode and
// waits for its creation.
func (w *Watch) FireMissing() {
	ws := w.ws
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.event != 0 {
		return
	}
	ws.closeLocked(w)
	w.fireLocked(zk.EventNodeDeleted, 0, w.t.conn)
}

// ExistedWhen reports whether w's znode is known to have existed when o's was deleted. No name is
// used twice.
//
// It demands that one connection reported o's deletion and set w's watch, that w's znode existed
// then, and that w has not fired. That is enough. Suppose that w's znode was deleted before o's:
//
//   - If that was before the server set w's watch, the server found no znode.
//   - Otherwise the server reported the deletion of w's znode on this connection before that of
//     o's, since it reports events in the order in which they happen. So w has fired.
//
// After a reconnection ExistedWhen returns false, because it can't know: if the new server lags, it
// reports later what happened before o's deletion.
func (w *Watch) ExistedWhen(o *Watch) bool {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	return w.event == 0 && w.t.exists && o.event == zk.EventNodeDeleted && w.t.conn == o.conn
}

// FiredWith reports whether the same transaction fired w and o, and whether that is known: servers
// since 3.9 tell the transaction, unless it came before the watch was set. Both are watches of one
// session that have fired.
func (w *Watch) FiredWith(o *Watch) (same, known bool) {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	return w.zxid == o.zxid && w.zxid > 0, w.zxid > 0 || o.zxid > 0
}

// Wake sends to ch, without blocking, when the watch fires, or at once if it has fired. A watch has
// one ch.
func (w *Watch) Wake(ch chan<- struct{}) {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	w.wake = ch
	if w.event != 0 {
		signal(ch)
	}
}

// signal sends to ch, if there is room.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
