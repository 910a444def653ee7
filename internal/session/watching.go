package session

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/watch"
)

// Watch waits for a change of one znode. It fires once.
type Watch = watch.Watch

// Watch sets an exists-watch on path: one request, or none if the session watches path already. The
// watch fires when the znode is created or deleted, or its data are set. It lasts across
// connections, and needs no permission; Close removes it.
//
// It blocks until the watch is set. If ctx or the session ends first, it returns an error and
// leaves no watch behind.
func (s *Session) Watch(ctx context.Context, path string) (*watch.Watch, error) {
	if err := checkNamed(path); err != nil {
		return nil, err
	}
	for {
		w := s.watches.Add(s.cfg.join(path), false)
		if err := s.awaitSet(ctx, w); err != nil {
			w.Close()
			return nil, err
		}
		if !w.Gone() {
			return w, nil
		}
		// A WatchAll had asked for the watch and found no znode. That watch is over, and the server
		// does not watch for the znode's creation: ask for it.
	}
}

// WatchChildren lists a znode's children and watches that list: the watch fires when a child is
// made or deleted, or the znode itself is deleted. It takes one request, and permission to read; if
// there is no znode, the error matches zk.ErrNoNode. Otherwise it is like Watch. Contenders that
// wait in line must not use it, since every change would wake them all: it is for the one contender
// that has to see every change.
func (s *Session) WatchChildren(
	ctx context.Context, path string,
) (*watch.Watch, []string, zk.Stat, error) {
	if err := checkNamed(path); err != nil {
		return nil, nil, zk.Stat{}, err
	}
	w := s.watches.Add(s.cfg.join(path), true)
	list := s.list(path, true)
	list.r.Hook = func(code int32) { w.Listed(code) }
	c, err := one(ctx, s, list)
	if err != nil {
		w.Close()
		return nil, nil, zk.Stat{}, err
	}
	w.Exists = true
	return w, c.Names, c.Stat, nil
}

// awaitSet waits until the server has answered the request for w, and sets w.Exists. It returns why
// w can't be set, or that ctx or the session has ended before the answer came.
func (s *Session) awaitSet(ctx context.Context, w *watch.Watch) error {
	err := s.awaitAnswer(ctx, w)
	if err == nil {
		err = w.Settle()
	}
	if err != nil {
		return &failure.OpError{Op: "watch", Path: s.cfg.strip(w.Path()), Err: err}
	}
	return nil
}

// awaitAnswer waits until the server has answered the request for w. An answer that has come
// counts, even if ctx or the session has ended.
func (s *Session) awaitAnswer(ctx context.Context, w *watch.Watch) error {
	ready := w.Ready()
	if ready == nil {
		return nil
	}
	until(ctx, s, ready)
	select {
	case <-ready:
		return nil
	default:
		return s.ended(ctx, s.waitingFor("waiting for the watch to be set"))
	}
}

// WatchAll watches several znodes that existed when last seen, by one request, or none if the
// session watches them all already. A watch fires when its znode is deleted or its data are set. If
// the znode is gone already, Exists is false and the watch has fired with the deletion when
// WatchAll returns. Otherwise each is like Watch. After an error none is left.
//
// List your own znode first: the server reports znodes that are already gone in the order of paths.
// See Watch.ExistedWhen for what two watches prove. No name may ever be used again; a contender's
// never is. The names, which the ensemble listed, are not checked.
//
// Setting them needs no permission, but a client that may not read a znode is not notified of its
// deletion.
//
// The request is setWatches, with which a client sets its watches again after a reconnection. It
// names the zxid up to which the client has been told of events. Here that is the greatest possible
// one, so that the server reports only deletions, and no changes of data.
func (s *Session) WatchAll(ctx context.Context, paths ...string) ([]*watch.Watch, error) {
	all, _, err := s.WatchAllAndCreation(ctx, "", paths...)
	return all, err
}

// WatchAllAndCreation is WatchAll that also, in the same request, watches for the creation of
// absent, a znode that does not exist. created fires when it is made, even if the same transaction
// deletes it again; if the znode exists already, it may never fire. So Watch and WatchAll must not
// be called for absent. Close created when it is not needed any more. It is nil if absent is "".
func (s *Session) WatchAllAndCreation(
	ctx context.Context, absent string, paths ...string,
) (all []*watch.Watch, created *watch.Watch, err error) {
	full := s.cfg.joinAll(paths)
	if absent != "" {
		absent = s.cfg.join(absent)
	}
	ws := s.watches.AddAll(full, absent)
	for i, w := range ws {
		if err := s.awaitSet(ctx, w); err != nil {
			for _, w := range ws {
				w.Close()
			}
			return nil, nil, err
		}
		if i == len(paths) {
			created = w
		} else if !w.Exists {
			w.FireMissing()
		}
	}
	return ws[:len(paths)], created, nil
}
