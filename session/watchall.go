package session

import (
	"context"
	"math"
	"slices"

	"github.com/go-zookeeper/zk"
)

// WatchAll watches several znodes that existed when they were last seen: by one request, or by none when the session watches
// them all already. A watch fires when its znode is deleted or its data are set. If the znode is gone by now, its watch has
// fired with the deletion when WatchAll returns, and Exists is false. (A server that is not ZooKeeper's may report the
// deletion a moment later.) Otherwise each is like Watch. After an error none is left.
//
// List your own znode first: if several are already gone, the server reports them in the order of paths. See ExistedWhen
// for what the order proves. No name may ever be used again; a contender's never is. Names are the ensemble's own, and are
// not checked.
//
// No permission is needed to set them; but a client that may not read a znode is not notified of its deletion. (On a
// server without the request for setting watches they are set by exists, one by one, and that may be refused:
// zk.ErrNoAuth.)
//
// The request is setWatches, with which a client that comes back sets its watches again. It names the latest zxid that the
// client has seen: here the greatest that there is, so that the server reports only deletions, and no changes of data.
func (s *Session) WatchAll(ctx context.Context, paths ...string) ([]*Watch, error) {
	all, _, err := s.WatchAllAndCreation(ctx, "", paths...)
	return all, err
}

// WatchAllAndCreation is WatchAll that also, in the same request, watches for the creation of absent, a znode that does not
// exist: created fires when it is made, also if the same transaction deletes it again. Close created if it is not needed any
// more. Should the znode exist already, created may never fire. created is nil if absent is "", and on servers without
// setWatches.
func (s *Session) WatchAllAndCreation(ctx context.Context, absent string, paths ...string) (all []*Watch, created *Watch, err error) {
	all = make([]*Watch, len(paths), len(paths)+1)
	for i := range all {
		all[i] = &Watch{s: s}
	}
	if absent != "" {
		created = &Watch{s: s}
	}
	if !s.watches.addAll(paths, all, absent, created) {
		created = nil
	}
	set := all
	if created != nil {
		set = append(set, created)
	}
	for _, w := range set {
		if err := w.set(ctx); err != nil {
			for _, w := range set {
				w.Close()
			}
			return nil, nil, err
		}
		if w != created && !w.Exists {
			s.watches.fireMissing(w)
		}
	}
	return all, created, nil
}

// fireMissing fires w with its znode's deletion, unless it has fired. (It has not if it shares its entry of the table with an
// earlier Watch, which found no znode and waits for its creation.)
func (ws *watches) fireMissing(w *Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.event != 0 {
		return
	}
	ws.closeLocked(w)
	w.fireLocked(zk.EventNodeDeleted, 0, w.t.conn)
}

// ExistedWhen reports whether w's znode is known to have existed when o's was deleted: w had not fired then, and the server
// that reported o's deletion was watching w's znode too. False means that this is not known: w has fired since, or the
// connection was lost in between, and another server may report earlier events later.
//
// A server reports the events that it watches for on one connection in the order in which they happen, and znodes that it
// finds gone when watches are set in the order of WatchAll's paths. So if w's znode had been deleted before o's, that
// would have been reported before.
func (w *Watch) ExistedWhen(o *Watch) bool {
	ws := w.s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.event == 0 && w.t.exists && o.event == zk.EventNodeDeleted && w.t.conn == o.conn
}

// FiredWith reports whether the same transaction made w and o fire, and whether that is known: servers since 3.9 tell which
// transaction it was, unless it came before the watch was set. Both are watches of one session that have fired.
func (w *Watch) FiredWith(o *Watch) (same, known bool) {
	ws := w.s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.zxid == o.zxid && w.zxid > 0, w.zxid > 0 || o.zxid > 0
}

// Wake sends to ch, without blocking, when the watch fires; at once if it has fired. A watch has one ch.
func (w *Watch) Wake(ch chan<- struct{}) {
	ws := w.s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.wake = ch; w.event != 0 {
		poke(ch)
	}
}

// poke sends to ch, if that is possible.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// addAll registers all[i] for paths[i] and, unless it is nil or the server has no setWatches, created for absent. Then it asks
// the server to watch what it had not been asked for. entered: created was registered. What is named first is registered last:
// see restore.
func (ws *watches) addAll(paths []string, all []*Watch, absent string, created *Watch) (entered bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	fresh := make([]*watched, 0, len(paths)+1)
	join := func(path string, w *Watch, b belief) {
		if t, ask := ws.joinLocked(watchKey{ws.s.join(path), false}, w, b); ask {
			fresh = append(fresh, t)
		}
	}
	if entered = created != nil && !ws.noSetWatches; entered {
		join(absent, created, believedAbsent)
	}
	for i := len(paths) - 1; i >= 0; i-- {
		join(paths[i], all[i], believedPresent)
	}
	slices.Reverse(fresh)
	ws.armAllLocked(fresh)
	return entered
}

// armAllLocked asks the server to watch ts. Each of them is believed to exist, or believed not to, and the request says which.
func (ws *watches) armAllLocked(ts []*watched) {
	switch c := ws.conn; {
	case len(ts) == 0:
	case ws.noSetWatches:
		for _, t := range ts {
			ws.armLocked(t)
		}
	default:
		ts = slices.DeleteFunc(slices.Clone(ts), func(t *watched) bool {
			long := ws.tooLong(t)
			if long {
				ws.armLocked(t) // the answer says as well whether the znode is gone
			}
			return long
		})
		ws.setWatchesLocked(ts, math.MaxInt64, func(ts []*watched, code int32) {
			ws.mu.Lock()
			defer ws.mu.Unlock()
			if ws.conn != c {
				return // the next conn has asked again, and its reply counts
			}
			ws.noSetWatches = code == codeUnimplemented
			for _, t := range ts {
				if ws.noSetWatches {
					ws.armLocked(t)
				} else {
					ws.setLocked(t, code)
				}
			}
		})
	}
}

// setWatchesMax bounds one setWatches request, and half of Config.PacketLimit does.
const setWatchesMax = 128 << 10

const (
	watchBytes     = 4  // that a path takes in a setWatches request beside its own
	setWatchesRoom = 36 // bytes that a setWatches request of one path takes beside the path
)

// tooLong reports whether a setWatches request with t alone would be longer than servers accept: they would close the
// connection. Such paths exist, because the server appends ten bytes to the path in a sequential create. An exists request
// has room for them.
func (ws *watches) tooLong(t *watched) bool {
	return !t.child && setWatchesRoom+len(t.path) > ws.s.cfg.PacketLimit
}

// setWatchesLocked sends setWatches requests for ts, in their order, as of zxid. hook runs for each of them in the conn's
// reader, without mu.
func (ws *watches) setWatchesLocked(ts []*watched, zxid int64, hook func(ts []*watched, code int32)) {
	most := min(setWatchesMax, ws.s.cfg.PacketLimit/2)
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
		b := appendLong(appendHeader(make([]byte, 0, size+64), opSetWatches), zxid)
		b = appendStrings(appendStrings(appendStrings(b, data), exist), child)
		ws.conn.enqueue(&request{op: opSetWatches, name: "set watches", repeatable: true, frame: b,
			hook: func(code int32) { hook(some, code) }})
	}
}
