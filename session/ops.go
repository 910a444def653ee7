package session

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// All operations below are alike. When they return nil, the server has answered yes. They block for one round trip,
// and before it, while there is no connection, as long as ctx and the session last; they return promptly when either
// ends. Reads are repeated when the connection breaks. A write is sent once: when its reply is lost, or ctx ends after
// it has left, the error matches ErrUnknownOutcome. One that would make ephemeral znodes for which the session has no
// room is not sent (ErrNoRoom). Refusals are the driver's errors (zk.ErrNoNode, …) inside an OpError. A bad path is refused
// before any I/O (ErrPath): by CheckPath's rules where something is made or written in a multi, and elsewhere by those for
// slashes and relative components only, since the ensemble may hold znodes that others have named. They may be called
// concurrently; calls made one after the other by one goroutine are carried out in that order. Several at once: see Batch.

// None is what a request answers that only succeeds or fails.
type None struct{}

// Data are a znode's data, as read together with its Stat.
type Data struct {
	Bytes []byte
	Stat  zk.Stat
}

// Children are the names of a znode's children, in no order, as read together with its Stat.
type Children struct {
	Names []string
	Stat  zk.Stat
}

// ACL is a znode's access list, as read together with its Stat.
type ACL struct {
	List []zk.ACL
	Stat zk.Stat
}

// Delete removes a znode; version −1 means any.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	_, err := one(ctx, s, s.delete(path, version))
	return err
}

// Get reads a znode.
func (s *Session) Get(ctx context.Context, path string) ([]byte, zk.Stat, error) {
	d, err := one(ctx, s, s.get(path))
	return d.Bytes, d.Stat, err
}

// Set replaces a znode's data; version −1 means any.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (zk.Stat, error) {
	return one(ctx, s, ask(s, opSetData, "set", path, func(b []byte) []byte {
		return appendInt(appendBytes(appendString(b, s.join(path)), data), version)
	}, (*decoder).stat))
}

// List returns the names of a znode's children, in no order.
func (s *Session) List(ctx context.Context, path string) ([]string, zk.Stat, error) {
	c, err := one(ctx, s, s.list(path, false))
	return c.Names, c.Stat, err
}

// Exists returns a znode's Stat; when there is none the error matches zk.ErrNoNode.
func (s *Session) Exists(ctx context.Context, path string) (zk.Stat, error) {
	return one(ctx, s, s.exists(path))
}

// ACL returns a znode's access list.
func (s *Session) ACL(ctx context.Context, path string) ([]zk.ACL, zk.Stat, error) {
	a, err := one(ctx, s, s.acl(path))
	return a.List, a.Stat, err
}

// SetACL replaces a znode's access list; version −1 means any.
func (s *Session) SetACL(ctx context.Context, path string, acl []zk.ACL, version int32) (zk.Stat, error) {
	return one(ctx, s, ask(s, opSetACL, "set ACL", path, func(b []byte) []byte {
		return appendInt(appendACL(appendString(b, s.join(path)), acl), version)
	}, (*decoder).stat))
}

// Sync waits until the connected server has caught up with the leader: what the leader had carried out when it was asked
// is seen by reads after it. That leaves a gap of milliseconds: a client of a follower may have its answer a moment before
// the leader itself has carried out the write, and a leader that is asked for a sync by a client of its own does not wait
// for that (ZooKeeper 3.8.0: 24 of 3,000 reads behind such a sync missed a write that had been acknowledged elsewhere,
// and none on another follower). Reads behind a write of one's own miss nothing that was acknowledged before.
func (s *Session) Sync(ctx context.Context, path string) error {
	_, err := one(ctx, s, s.sync(path))
	return err
}

// ask returns the request op on path, whose reply read decodes.
func ask[T any](s *Session, op int32, name, path string, body func([]byte) []byte, read func(*decoder) T) *Result[T] {
	if err := checkNamed(path); err != nil {
		return &Result[T]{Err: err}
	}
	a := &Result[T]{r: newRequest(op, name, path, body)}
	a.decode = func() (v T, err error) {
		d, err := a.r.result()
		if err != nil {
			return v, err
		}
		if v = read(d); d.err != nil {
			var zero T
			return zero, s.garbled(a.r, d.err)
		}
		return v, nil
	}
	return a
}

func (s *Session) delete(path string, version int32) *Result[None] {
	return ask(s, opDelete, "delete", path, func(b []byte) []byte { return appendInt(appendString(b, s.join(path)), version) },
		(*decoder).none)
}

func (s *Session) get(path string) *Result[Data] {
	return ask(s, opGetData, "get", path, func(b []byte) []byte { return appendBool(appendString(b, s.join(path)), false) },
		func(d *decoder) Data { return Data{d.bytes(), d.stat()} })
}

func (s *Session) list(path string, watch bool) *Result[Children] {
	name := "list"
	if watch {
		name = "watch children"
	}
	return ask(s, opGetChildren2, name, path, func(b []byte) []byte { return appendBool(appendString(b, s.join(path)), watch) },
		func(d *decoder) Children { return Children{d.names(), d.stat()} })
}

func (s *Session) exists(path string) *Result[zk.Stat] {
	return ask(s, opExists, "exists", path, func(b []byte) []byte { return appendBool(appendString(b, s.join(path)), false) },
		(*decoder).stat)
}

func (s *Session) acl(path string) *Result[ACL] {
	return ask(s, opGetACL, "get ACL", path, func(b []byte) []byte { return appendString(b, s.join(path)) },
		func(d *decoder) ACL { return ACL{d.acl(), d.stat()} })
}

func (s *Session) sync(path string) *Result[None] {
	return ask(s, opSync, "sync", path, func(b []byte) []byte { return appendString(b, s.join(path)) }, (*decoder).none)
}
