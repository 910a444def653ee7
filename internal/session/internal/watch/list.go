package watch

import "container/list"

// watchList lists the watches of the table in the order in which a new server is asked for them,
// and knows which of them the present server has been asked for: see "The order of requests" at
// Table. Its methods take constant time. Table.mu guards it.
type watchList struct {
	all list.List // of *watched

	// unasked is the first watch for which the server has not been asked; nil if there is none. The
	// server has not been asked for any behind it either.
	unasked *list.Element
}

// add puts t in front of the watches for which the server has not been asked. It returns true if
// the caller has to ask for t now. It returns false if Restore will: if there is no server
// (isDetached), or if Restore is not done with the others.
func (l *watchList) add(t *watched, isDetached bool) (ask bool) {
	isRestoring := l.unasked != nil
	if isRestoring {
		t.place = l.all.InsertBefore(t, l.unasked)
	} else {
		t.place = l.all.PushFront(t)
	}
	if isRestoring || isDetached {
		l.unasked = t.place
		return false
	}
	return true
}

// next returns the first watch for which the server has not been asked. There must be one. It
// counts as asked for from now on.
func (l *watchList) next() *watched {
	t := l.unasked.Value.(*watched) //nolint:forcetypeassert // nothing else is entered
	l.unasked = l.unasked.Next()
	return t
}

// restart says that the server has been asked for none: it is a new one, or there is none.
func (l *watchList) restart() { l.unasked = l.all.Front() }

func (l *watchList) remove(t *watched) {
	if l.unasked == t.place {
		l.unasked = t.place.Next()
	}
	l.all.Remove(t.place)
}
