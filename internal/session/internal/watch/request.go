package watch

import (
	"math"

	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// What the table sends to its server. No call waits for the replies: hooks take them. A call
// that adds requests which set watches has them written without the table's mutex: link.Conn.Flush.

// askLocked asks the server to watch the znode t, by an exists request. conn is not nil.
//
// If t is a list of children, askLocked does nothing: WatchChildren itself sends the list that sets
// the watch.
func (ws *Table) askLocked(t *watched) {
	if t.child {
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
			ws.takeAnswerLocked(t, code)
		}
	}
	ws.conn.Add(r)
}

// askAllLocked asks the server to watch ts, in order, by setWatches requests. Each of ts is
// believedPresent or believedAbsent, and the request says which.
//
// A path that is too long for setWatches is asked for by exists, in front of the others. That
// answer, too, says whether the znode is gone.
func (ws *Table) askAllLocked(ts []*watched) {
	c := ws.conn
	together := make([]*watched, 0, len(ts))
	for _, t := range ts {
		if ws.fitsSetWatches(t) {
			together = append(together, t)
		} else {
			ws.askLocked(t)
		}
	}
	// As of the greatest zxid: the server reports only that a znode does not exist, or does,
	// against our belief, and no change of data.
	ws.setWatchesLocked(together, math.MaxInt64, func(ts []*watched, code int32) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.conn != c {
			return // the next conn has asked again, and its reply counts
		}
		for _, t := range ts {
			ws.takeAnswerLocked(t, code)
		}
	})
}

const (
	// setWatchesMax bounds the bytes of one setWatches request. Half of Config.JuteMaxBuffer is a
	// bound too.
	setWatchesMax = 128 << 10

	watchBytes     = 4  // of a path's length in a setWatches request
	setWatchesRoom = 36 // bytes of a setWatches request of one path, besides the path
)

// fitsSetWatches reports whether a setWatches request for t alone is short enough for the server.
// In a sequential create the server appends ten bytes to a path, so a znode's path may be longer
// than any that a setWatches request has room for. An exists request has room for all.
func (ws *Table) fitsSetWatches(t *watched) bool {
	return t.child || setWatchesRoom+len(t.path) <= ws.juteMaxBuffer
}

// setWatchesLocked sends setWatches requests for ts, in order, as of zxid, and returns how many.
// For each, hook gets its watches and the code of the reply. It runs in the conn's reader, without
// mu.
func (ws *Table) setWatchesLocked(
	ts []*watched, zxid int64, hook func(ts []*watched, code int32),
) (requests int) {
	most := min(setWatchesMax, ws.juteMaxBuffer/2)
	for len(ts) > 0 {
		n, size := firstThatFit(ts, most)
		some := ts[:n]
		ts = ts[n:]
		frame := appendSetWatches(make([]byte, 0, size+64), some, zxid)
		r := pipeline.Unawaited(wire.OpSetWatches, "set watches", "", frame)
		r.Hook = func(code int32) { hook(some, code) }
		ws.conn.Add(r)
		requests++
	}
	return requests
}

// firstThatFit returns how many of ts, at least one, go into a request of most bytes, and the size
// of their paths in it.
func firstThatFit(ts []*watched, most int) (n, size int) {
	for _, t := range ts {
		bytes := watchBytes + len(t.path)
		if n > 0 && size+bytes > most {
			break
		}
		n++
		size += bytes
	}
	return n, size
}

// appendSetWatches appends a setWatches request. The server compares each znode with what the
// client knew of it at zxid: data names znodes that existed, exist those that did not.
func appendSetWatches(frame []byte, ts []*watched, zxid int64) []byte {
	var exist, child []string
	data := make([]string, 0, len(ts)) // most are of this kind
	for _, t := range ts {
		switch {
		case t.child:
			child = append(child, t.path)
		case t.belief == believedPresent || t.exists:
			data = append(data, t.path)
		default:
			exist = append(exist, t.path)
		}
	}
	frame = wire.AppendLong(wire.AppendHeader(frame, wire.OpSetWatches), zxid)
	frame = wire.AppendStrings(frame, data)
	frame = wire.AppendStrings(frame, exist)
	return wire.AppendStrings(frame, child)
}

// The server's types of watches, as removeWatches names them.
const (
	childWatch int32 = 1 // set by getChildren
	dataWatch  int32 = 2 // set by exists and getData
)

// unsetLocked asks the server to remove its watch. The answer does not matter: "no such watch"
// means that the watch has just fired, and one that a busy server keeps ends with its znode, or
// with the connection.
func (ws *Table) unsetLocked(t watchKey) {
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
