package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// Mode is the kind of a znode.
type Mode int32

// The kinds, by the numbers of the wire.
const (
	Persistent           Mode = 0
	Ephemeral            Mode = 1
	PersistentSequential Mode = 2
	EphemeralSequential  Mode = 3
	Container            Mode = 4 // goes some time after its last child went; since ZooKeeper 3.6
)

// Created is what a create made.
type Created struct {
	Path  string // with the number behind it, for a sequential znode
	Czxid int64  // the zxid of the create
}

// All operations below are alike. When they return nil, the server has answered yes. They block for one round trip,
// and before it, while there is no connection, as long as ctx and the session last; they return promptly when either
// ends. Reads are repeated when the connection breaks. A write is sent once: when its reply is lost, or ctx ends after
// it has left, the error matches ErrUnknownOutcome. One that would make ephemeral znodes for which the session has no
// room is not sent (ErrNoRoom). Refusals are the driver's errors (zk.ErrNoNode, …) inside an OpError; a bad path is refused before any I/O (ErrPath): by CheckPath's rules where something is made or written in a
// multi, and elsewhere by those for slashes and relative components only, since the ensemble may hold znodes that others
// have named. They may be called concurrently; calls made one after the other by one goroutine are carried out in that
// order.

// Create makes a znode. Its parent must exist.
func (s *Session) Create(ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL) (Created, error) {
	c, err := s.newCreate(path, data, mode, acl)
	if err != nil {
		return Created{}, err
	}
	if err := s.run(ctx, c); err != nil && !c.replied() {
		return Created{}, err
	}
	return s.created(c)
}

// CreateAndList makes a znode and lists its parent, the list sent right behind the create on one connection and so
// answered after it: one round trip. When the create's outcome is known and good, Created is set, also when the list
// fails. An error that matches ErrUnknownOutcome speaks of the create.
func (s *Session) CreateAndList(ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL) (Created, []string, error) {
	c, err := s.newCreate(path, data, mode, acl)
	if err != nil {
		return Created{}, nil, err
	}
	ls := s.newList(path[:max(1, strings.LastIndexByte(path, '/'))])
	if err := s.run(ctx, c, ls); err != nil {
		if c.replied() { // then it is the list's failure
			made, createErr := s.created(c)
			if createErr != nil {
				return Created{}, nil, createErr
			}
			return made, nil, err
		}
		return Created{}, nil, err
	}
	made, err := s.created(c)
	if err != nil {
		return Created{}, nil, err
	}
	names, _, err := s.listed(ls)
	return made, names, err
}

// Delete removes a znode; version −1 stands for any.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	if err := checkNamed(path); err != nil {
		return err
	}
	return s.yes(ctx, newCall(opDelete, "delete", path, func(b []byte) []byte {
		return appendInt(appendString(b, s.join(path)), version)
	}))
}

// DeleteAll is Delete of several znodes at once, of any version, in one round trip for about a hundred; an error for
// each, nil where it was deleted. The paths may be of the ensemble's own making.
func (s *Session) DeleteAll(ctx context.Context, paths []string) []error {
	errs := make([]error, len(paths))
	calls := make([]*call, 0, len(paths))
	for i, p := range paths {
		if errs[i] = checkNamed(p); errs[i] == nil {
			calls = append(calls, newCall(opDelete, "delete", p, func(b []byte) []byte {
				return appendInt(appendString(b, s.join(p)), -1)
			}))
		}
	}
	var failed error
	if len(calls) > 0 {
		failed = s.run(ctx, calls...)
	}
	for i := range errs {
		if errs[i] != nil {
			continue
		}
		c := calls[0]
		if calls = calls[1:]; failed != nil && !c.replied() {
			errs[i] = failed // of the first that has no answer: this one has none either
		} else {
			_, errs[i] = c.result()
		}
	}
	return errs
}

// Get reads a znode.
func (s *Session) Get(ctx context.Context, path string) ([]byte, zk.Stat, error) {
	if err := checkNamed(path); err != nil {
		return nil, zk.Stat{}, err
	}
	c := newCall(opGetData, "get", path, func(b []byte) []byte { return appendBool(appendString(b, s.join(path)), false) })
	var data []byte
	var stat zk.Stat
	err := s.ask(ctx, c, func(d *decoder) { data, stat = d.bytes(), d.stat() })
	return data, stat, err
}

// Set replaces a znode's data; version −1 stands for any.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (zk.Stat, error) {
	if err := checkNamed(path); err != nil {
		return zk.Stat{}, err
	}
	c := newCall(opSetData, "set", path, func(b []byte) []byte {
		return appendInt(appendBytes(appendString(b, s.join(path)), data), version)
	})
	return s.stat(ctx, c)
}

// List returns the names of a znode's children, in no order.
func (s *Session) List(ctx context.Context, path string) ([]string, zk.Stat, error) {
	if err := checkNamed(path); err != nil {
		return nil, zk.Stat{}, err
	}
	c := s.newList(path)
	if err := s.run(ctx, c); err != nil {
		return nil, zk.Stat{}, err
	}
	return s.listed(c)
}

// Exists returns a znode's Stat; when there is none the error matches zk.ErrNoNode.
func (s *Session) Exists(ctx context.Context, path string) (zk.Stat, error) {
	if err := checkNamed(path); err != nil {
		return zk.Stat{}, err
	}
	return s.stat(ctx, newCall(opExists, "exists", path, func(b []byte) []byte {
		return appendBool(appendString(b, s.join(path)), false)
	}))
}

// ExistsNow is Exists preceded by a Sync, both in one round trip: what it tells was true at the leader after the call
// began; see Sync for how late a leader may be.
func (s *Session) ExistsNow(ctx context.Context, path string) (zk.Stat, error) {
	if err := checkNamed(path); err != nil {
		return zk.Stat{}, err
	}
	sync := newCall(opSync, "sync", path, func(b []byte) []byte { return appendString(b, s.join(path)) })
	exists := newCall(opExists, "exists", path, func(b []byte) []byte { return appendBool(appendString(b, s.join(path)), false) })
	if err := s.run(ctx, sync, exists); err != nil {
		return zk.Stat{}, err
	}
	if _, err := sync.result(); err != nil {
		return zk.Stat{}, err
	}
	d, err := exists.result()
	if err != nil {
		return zk.Stat{}, err
	}
	stat := d.stat()
	if d.err != nil {
		return zk.Stat{}, s.garbled(exists, d.err)
	}
	return stat, nil
}

// ACL returns a znode's access list.
func (s *Session) ACL(ctx context.Context, path string) ([]zk.ACL, zk.Stat, error) {
	if err := checkNamed(path); err != nil {
		return nil, zk.Stat{}, err
	}
	c := newCall(opGetACL, "get ACL", path, func(b []byte) []byte { return appendString(b, s.join(path)) })
	var acl []zk.ACL
	var stat zk.Stat
	err := s.ask(ctx, c, func(d *decoder) { acl, stat = d.acl(), d.stat() })
	return acl, stat, err
}

// SetACL replaces a znode's access list; version −1 stands for any version of it.
func (s *Session) SetACL(ctx context.Context, path string, acl []zk.ACL, version int32) (zk.Stat, error) {
	if err := checkNamed(path); err != nil {
		return zk.Stat{}, err
	}
	return s.stat(ctx, newCall(opSetACL, "set ACL", path, func(b []byte) []byte {
		return appendInt(appendACL(appendString(b, s.join(path)), acl), version)
	}))
}

// Sync waits until the connected server has caught up with the leader: what the leader had carried out when it was asked
// is seen by reads after it. That leaves a gap of milliseconds: a client of a follower may have its answer a moment before
// the leader itself has carried out the write, and a leader that is asked for a sync by a client of its own does not wait
// for that (ZooKeeper 3.8.0: 24 of 3,000 reads behind such a sync missed a write that had been acknowledged elsewhere,
// and none on another follower). Reads behind a write of one's own miss nothing that was acknowledged before.
func (s *Session) Sync(ctx context.Context, path string) error {
	if err := checkNamed(path); err != nil {
		return err
	}
	return s.yes(ctx, newCall(opSync, "sync", path, func(b []byte) []byte { return appendString(b, s.join(path)) }))
}

// CreateAll makes path and whatever of its parents is missing, the chroot included. The parents are persistent; path
// itself is of the given mode, Persistent or Container. A znode that is there already is left as it is, whatever its
// kind. Any number of clients may do this at once.
func (s *Session) CreateAll(ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	full := s.join(path)
	for end := len(full); ; { // leaf first: mostly it is all that is missing, and the parents may be closed to us
		m, content := Persistent, []byte(nil)
		if end == len(full) {
			m, content = mode, data
		}
		err := s.createOne(ctx, full[:end], content, m, acl)
		switch {
		case err == nil || errors.Is(err, zk.ErrNodeExists):
			if end == len(full) {
				return nil
			}
			if next := strings.IndexByte(full[end+1:], '/'); next >= 0 {
				end += 1 + next
			} else {
				end = len(full)
			}
		case errors.Is(err, zk.ErrNoNode):
			if end = strings.LastIndexByte(full[:end], '/'); end <= 0 {
				return fmt.Errorf("session: create %s: the root is missing: %w", path, err)
			}
		case errors.Is(err, ErrUnknownOutcome) && ctx.Err() == nil && s.Err() == nil:
			// Making it twice does no harm: ask again.
		default:
			return err
		}
	}
}

// createOne makes the znode full, which the chroot is part of. A znode that stands below a parent that is closed to us
// can't be made, which the server says first; but it is there.
func (s *Session) createOne(ctx context.Context, full string, data []byte, mode Mode, acl []zk.ACL) error {
	path := s.strip(full)
	c := createCall(full, path, data, mode, acl)
	err := s.run(ctx, c)
	if err == nil {
		_, err = s.created(c)
	}
	if !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	look := newCall(opExists, "exists", path, func(b []byte) []byte { return appendBool(appendString(b, full), false) })
	if lookErr := s.yes(ctx, look); lookErr != nil {
		return err
	}
	return nil
}

func (s *Session) newCreate(path string, data []byte, mode Mode, acl []zk.ACL) (*call, error) {
	if err := checkCreate(path, mode); err != nil {
		return nil, err
	}
	c := createCall(s.join(path), path, data, mode, acl)
	c.changes = changeOf(path, mode, 0)
	return c, nil
}

// checkCreate is CheckPath for a znode to be made.
func checkCreate(path string, mode Mode) error {
	if mode == EphemeralSequential || mode == PersistentSequential {
		path += "0" // the name may be the number alone
	}
	return CheckPath(path)
}

func createCall(full, path string, data []byte, mode Mode, acl []zk.ACL) *call {
	op := opCreate
	if mode == Container {
		op = opCreateContainer
	}
	return newCall(op, "create", path, func(b []byte) []byte {
		return appendInt(appendACL(appendBytes(appendString(b, full), data), acl), int32(mode))
	})
}

func (s *Session) created(c *call) (Created, error) {
	made, err := s.decodeCreated(c)
	s.ephemerals.settle(c, err, func(change) string { return made.Path })
	return made, err
}

func (s *Session) decodeCreated(c *call) (Created, error) {
	d, err := c.result()
	if err != nil {
		return Created{}, err
	}
	path := d.string()
	if d.err != nil {
		return Created{}, s.garbled(c, d.err)
	}
	path = s.strip(path)
	if !mayHaveMade(c.path, path) {
		return Created{}, s.garbled(c, errOtherPath)
	}
	return Created{Path: path, Czxid: c.head.zxid}, nil
}

var errOtherPath = errors.New("the path of another znode")

// mayHaveMade reports whether a create that asked for want can have made path: it itself, or with a number behind it, of
// 32 bits and at least ten digits. Whoever believed another one would take it for his own, and leave his own behind.
func mayHaveMade(want, path string) bool {
	number, ok := strings.CutPrefix(path, want)
	if !ok || number == "" {
		return ok
	}
	n, err := strconv.ParseInt(number, 10, 32)
	return err == nil && number == fmt.Sprintf("%010d", n)
}

func (s *Session) newList(path string) *call {
	return newCall(opGetChildren2, "list", path, func(b []byte) []byte {
		return appendBool(appendString(b, s.join(path)), false)
	})
}

func (s *Session) listed(c *call) ([]string, zk.Stat, error) {
	d, err := c.result()
	if err != nil {
		return nil, zk.Stat{}, err
	}
	names, stat := d.strings(), d.stat()
	if d.err != nil {
		return nil, zk.Stat{}, s.garbled(c, d.err)
	}
	return names, stat, nil
}

// ask runs one call and decodes its reply.
func (s *Session) ask(ctx context.Context, c *call, decode func(*decoder)) error {
	if err := s.run(ctx, c); err != nil {
		return err
	}
	d, err := c.result()
	if err != nil {
		return err
	}
	if decode(d); d.err != nil {
		return s.garbled(c, d.err)
	}
	return nil
}

// yes runs a call whose reply holds nothing that matters.
func (s *Session) yes(ctx context.Context, c *call) error { return s.ask(ctx, c, func(*decoder) {}) }

// stat runs a call whose reply is a Stat.
func (s *Session) stat(ctx context.Context, c *call) (stat zk.Stat, err error) {
	err = s.ask(ctx, c, func(d *decoder) { stat = d.stat() })
	return stat, err
}
