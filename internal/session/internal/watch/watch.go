package watch

import (
	"math"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Watch waits for a change of one znode. It fires once.
type Watch struct {
	t  *watched
	ws *Table

	// Guarded by Table.mu.
	event zk.EventType // what happened; 0: not fired
	zxid  int64        // of the event, if the server has told it
	conn  uint64       // number of the conn that reported the event
	then  func(zk.EventType)
	wake  chan<- struct{}

	// Exists says whether the znode existed when the watch was set. A watch that is shared with an
	// earlier Watch was set for that one, and has not fired since.
	Exists bool
}

// Path is the watched path, with the chroot.
func (w *Watch) Path() string { return w.t.path }

// Ready returns a channel that is closed when the server has answered the request for w; nil: it
// has.
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

// Gone may be called once the server has answered: see Ready. It reports whether the znode, which
// was believed present, had gone when the watch was set: nothing waits for its creation.
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
// but not if the session ends, or the watch is closed, first. A watch has one fn.
func (w *Watch) Then(fn func(zk.EventType)) {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	if w.then = fn; w.event != 0 {
		w.callBackLocked()
	}
}

// FireMissing fires w with its znode's deletion, unless it has fired. (It has not if it shares its
// table entry with an earlier Watch that found no znode and waits for its creation.)
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

// ExistedWhen reports whether w's znode is known to have existed when o's was deleted: w had not
// fired, and the server that reported o's deletion was watching w's znode too. It returns false if
// that is not known, because w has fired since, or the connection was lost in between, and another
// server may report earlier events later.
//
// A server reports events on one connection in the order in which they happen, and znodes that it
// finds gone when watches are set in the order of WatchAll's paths. So it would have reported an
// earlier deletion of w's znode first.
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
	if w.wake = ch; w.event != 0 {
		signal(ch)
	}
}

// AddAll returns a Watch of each of paths and, behind them, one of absent, unless that is "". It
// asks the server to watch what is new to it. The first in paths is registered last: see restore.
func (ws *Table) AddAll(paths []string, absent string) []*Watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	all, fresh := make([]*Watch, len(paths), len(paths)+1), make([]*watched, 0, len(paths)+1)
	enlist := func(path string, b belief) *Watch {
		w, ask := ws.enlistLocked(watchKey{path, false}, b)
		if ask {
			fresh = append(fresh, w.t)
		}
		return w
	}
	if absent != "" {
		all = append(all, enlist(absent, believedAbsent))
	}
	for i, path := range slices.Backward(paths) {
		all[i] = enlist(path, believedPresent)
	}
	slices.Reverse(fresh)
	ws.armAllLocked(fresh)
	return all
}

// armAllLocked asks the server to watch ts, each of which is believedPresent or believedAbsent, as
// the request says.
func (ws *Table) armAllLocked(ts []*watched) {
	c := ws.conn
	together := make([]*watched, 0, len(ts))
	for _, t := range ts {
		if ws.unnamable(t) {
			ws.armLocked(t) // its answer, too, says whether the znode is gone
		} else {
			together = append(together, t)
		}
	}
	ws.setWatchesLocked(together, math.MaxInt64, func(ts []*watched, code int32) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.conn != c {
			return // the next conn has asked again, and its reply counts
		}
		for _, t := range ts {
			ws.setLocked(t, code)
		}
	})
}

const (
	// bytes of one setWatches request; half of Config.JuteMaxBuffer is a bound too
	setWatchesMax  = 128 << 10
	watchBytes     = 4  // of a path's length in a setWatches request
	setWatchesRoom = 36 // bytes of a setWatches request of one path, besides the path
)

// unnamable reports whether t fits in no setWatches request: one with t alone would be too long. In
// a sequential create the server appends ten bytes to a path; only an exists request has room for
// the longest ones.
func (ws *Table) unnamable(t *watched) bool {
	return !t.child && setWatchesRoom+len(t.path) > ws.juteMaxBuffer
}

// setWatchesLocked sends setWatches requests for ts, in order, as of zxid, and returns how many.
// For each, hook runs in the conn's reader, without mu.
func (ws *Table) setWatchesLocked(
	ts []*watched, zxid int64, hook func(ts []*watched, code int32),
) (requests int) {
	most := min(setWatchesMax, ws.juteMaxBuffer/2)
	for len(ts) > 0 {
		var data, exist, child []string
		n, size := 0, 0
		for _, t := range ts {
			if size += watchBytes + len(t.path); size > most && n > 0 {
				break
			}
			n++
			switch {
			case t.child:
				child = append(child, t.path)
			case t.belief == believedPresent || t.exists:
				data = append(data, t.path)
			default:
				exist = append(exist, t.path)
			}
		}
		some := ts[:n]
		ts = ts[n:]
		b := wire.AppendLong(wire.AppendHeader(make([]byte, 0, size+64), wire.OpSetWatches), zxid)
		b = wire.AppendStrings(wire.AppendStrings(wire.AppendStrings(b, data), exist), child)
		r := pipeline.Unawaited(wire.OpSetWatches, "set watches", "", b)
		r.Hook = func(code int32) { hook(some, code) }
		ws.conn.Enqueue(r)
		requests++
	}
	return requests
}

// signal sends to ch, if there is room.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
