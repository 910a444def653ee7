package session

import (
	"context"

	"github.com/go-zookeeper/zk"
)

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
	case current == nil: // an earlier watch of the same kind has fired since we asked: this one is nobody's
		ws.takeAwayLocked(t.watchKey)
	case len(current.waiters) == 0:
		ws.removeLocked(current)
	default:
		current.armed, current.conn = true, ws.conns
	}
}
