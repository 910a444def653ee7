package session_test

import (
	"context"
	"errors"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// batcher is a session, or a type that embeds one.
type batcher interface{ Batch() *session.Batch }

// createAndList makes a znode and lists its parent, in one round trip.
func createAndList(ctx context.Context, s batcher, znode string, data []byte, mode session.Mode, acl []zk.ACL) (session.Created, []string, error) {
	b := s.Batch()
	made, list := b.Create(znode, data, mode, acl), b.List(path.Dir(znode))
	err := b.Do(ctx)
	return made.Value, list.Value.Names, err
}

// transactAndList carries out a transaction and lists dirs, in one round trip.
func transactAndList(ctx context.Context, s batcher, ops []session.Op, dirs []string) (session.Transaction, [][]string, error) {
	b := s.Batch()
	tx := b.Multi(ops...)
	var lists []*session.Result[session.Children]
	for _, dir := range dirs {
		lists = append(lists, b.List(dir))
	}
	err := b.Do(ctx)
	var names [][]string
	for _, l := range lists {
		names = append(names, l.Value.Names)
	}
	return tx.Value, names, err
}

// listAll lists several znodes in one round trip. One that does not exist has no children.
func listAll(ctx context.Context, s batcher, paths []string) (names [][]string, err error) {
	b := s.Batch()
	var lists []*session.Result[session.Children]
	for _, p := range paths {
		lists = append(lists, b.List(p))
	}
	_ = b.Do(ctx) // the results say the same
	for _, l := range lists {
		if err = l.Err; err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		names = append(names, l.Value.Names)
	}
	return names, nil
}

// existsNow reads a Stat after a sync, in one round trip.
func existsNow(ctx context.Context, s batcher, znode string) (zk.Stat, error) {
	b := s.Batch()
	b.Sync(znode)
	stat := b.Exists(znode)
	err := b.Do(ctx)
	return stat.Value, err
}

// deleteAll deletes several znodes in one round trip, and returns an error for each.
func deleteAll(ctx context.Context, s batcher, paths []string) (errs []error) {
	b := s.Batch()
	var deleted []*session.Result[session.None]
	for _, p := range paths {
		deleted = append(deleted, b.Delete(p, -1))
	}
	_ = b.Do(ctx) // the results say the same
	for _, d := range deleted {
		errs = append(errs, d.Err)
	}
	return errs
}
