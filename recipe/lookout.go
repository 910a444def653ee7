package recipe

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// lookout is the watches of one who waits: on the contender immediately before it and, for a mutex with more than one of
// them, on the one before that.
type lookout [2]struct {
	name string
	w    *session.Watch // nil: none
}

// watch sets the watches on two contenders, the second "" for none, in one round trip at most. What is watched already
// stays so; what is not wanted any more is closed.
func (l *lookout) watch(ctx context.Context, t *Ticket, first, second string) (err error) {
	old := *l
	*l = lookout{}
	for i, name := range []string{first, second} {
		l[i].name = name
		for k := range old {
			if name != "" && old[k].name == name && old[k].w != nil {
				l[i].w, old[k].w = old[k].w, nil
			}
		}
	}
	old.close()
	dir := t.q.Dir + "/"
	switch {
	case l[0].w == nil && l[1].w == nil && second != "":
		l[0].w, l[1].w, err = t.s.WatchBoth(ctx, dir+first, dir+second)
	case l[0].w == nil:
		l[0].w, err = t.s.Watch(ctx, dir+first)
	case l[1].w == nil && second != "":
		l[1].w, err = t.s.Watch(ctx, dir+second)
	}
	return err
}

// fired returns the channel of a watch; nil when there is none.
func (l *lookout) fired(i int) <-chan struct{} {
	if l[i].w == nil {
		return nil
	}
	return l[i].w.Fired()
}

// gone reports whether a watched contender does not stand any more.
func (l *lookout) gone(i int) bool {
	w := l[i].w
	return w != nil && (!w.Exists || deleted(w))
}

// used closes what has fired. To be called before the look that it asks for: what that still shows is watched anew, and
// what fires from then on is news.
func (l *lookout) used() {
	for i := range l {
		if w := l[i].w; w != nil && (!w.Exists || over(w)) {
			w.Close()
			l[i].w = nil
		}
	}
}

func (l *lookout) close() {
	for i := range l {
		if l[i].w != nil {
			l[i].w.Close()
		}
	}
	*l = lookout{}
}

func over(w *session.Watch) bool {
	select {
	case <-w.Fired():
		return true
	default:
		return false
	}
}

func deleted(w *session.Watch) bool { return over(w) && w.Event() == zk.EventNodeDeleted }
