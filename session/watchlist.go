package session

// watchList lists what is in the watch table, mostly the newest first, and knows how far the server of the present conn has
// been asked for it. Every method takes a few instructions, however long the list is. Guarded by watches.mu.
type watchList struct {
	newest  *watched
	unasked *watched // newest watch not yet sent to the current server; all older ones are unsent too
}

// add enters t. detached: there is no server to ask, and unasked is the newest. It reports whether the caller has to ask for
// t now; else t is the next one that restore asks for.
func (l *watchList) add(t *watched, detached bool) (ask bool) {
	before := l.unasked
	if ask = !detached && before == nil; ask {
		before = l.newest
	} else {
		l.unasked = t
	}
	if t.older = before; before != nil {
		t.newer, before.newer = before.newer, t
	}
	if t.newer != nil {
		t.newer.older = t
	} else {
		l.newest = t
	}
	return ask
}

// remove takes t out.
func (l *watchList) remove(t *watched) {
	if l.unasked == t {
		l.unasked = t.older
	}
	if t.newer != nil {
		t.newer.older = t.older
	} else {
		l.newest = t.older
	}
	if t.older != nil {
		t.older.newer = t.newer
	}
	t.newer, t.older = nil, nil
}

// askAgain says that the server of the next conn is to be asked for everything.
func (l *watchList) askAgain() { l.unasked = l.newest }
