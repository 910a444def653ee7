package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
)

// Mode is the kind of a znode.
type Mode int32

// The kinds, by the numbers of the wire.
const (
	Persistent           Mode = 0
	Ephemeral            Mode = 1
	PersistentSequential Mode = 2
	EphemeralSequential  Mode = 3
	Container            Mode = 4 // the ensemble deletes it some time after its last child; since ZooKeeper 3.6; Persistent on ClickHouse Keeper
)

// ephemeral reports whether a znode of this mode goes with its session.
func (m Mode) ephemeral() bool { return m == Ephemeral || m == EphemeralSequential }

// Created is what a create made.
type Created struct {
	Path  string // with the number behind it, for a sequential znode
	Czxid int64  // the zxid of the create
}

// Create makes a znode. Its parent must exist.
func (s *Session) Create(ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL) (Created, error) {
	return one(ctx, s, s.create(path, data, mode, acl))
}

func (s *Session) create(path string, data []byte, mode Mode, acl []zk.ACL) *Result[Created] {
	if err := checkCreate(path, mode); err != nil {
		return &Result[Created]{Err: err}
	}
	a := s.createFull(s.join(path), path, data, mode, acl)
	a.r.changes = changeOf(path, mode, 0)
	return a
}

// CreateAll makes path and whatever of its parents is missing. The parents are persistent; path itself is of the given
// mode, Persistent or Container. A chroot that is missing is an error (ErrConfig), or, with Config.CreateChroot, is made
// as well. A znode that exists already is left as it is, whatever its kind. Any number of clients may do this at once.
func (s *Session) CreateAll(ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL) error {
	return s.createAll(ctx, false, path, data, mode, acl)
}

// CreateAllGrouped is CreateAll for the packages of this module: its creates may be members of a group, as those of a
// Grouped batch.
func (s *Session) CreateAllGrouped(ctx context.Context, _ trusted.Caller, path string, data []byte, mode Mode, acl []zk.ACL) error {
	return s.createAll(ctx, true, path, data, mode, acl)
}

func (s *Session) createAll(ctx context.Context, grouped bool, path string, data []byte, mode Mode, acl []zk.ACL) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	chroot := len(s.cfg.chroot)
	if s.cfg.CreateChroot {
		chroot = 0
	}
	if path == "/" && chroot > 0 {
		return s.checkChroot(ctx)
	}
	full := s.join(path)
	for end := len(full); ; { // leaf first: mostly it is all that is missing, and the parents may be closed to us
		m, content := Persistent, []byte(nil)
		if end == len(full) {
			m, content = mode, data
		}
		err := s.createOne(ctx, grouped, full[:end], content, m, acl)
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
			switch end = strings.LastIndexByte(full[:end], '/'); {
			case end <= chroot && chroot > 0:
				if err := s.checkChroot(ctx); err != nil {
					return err
				}
				end = chroot + 1 + strings.IndexByte(full[chroot+1:]+"/", '/') // it has been made meanwhile
			case end <= 0:
				return fmt.Errorf("session: create %s: the root is missing: %w", path, err)
			}
		case errors.Is(err, ErrUnknownOutcome) && ctx.Err() == nil && s.Err() == nil:
			// Making it twice does no harm: ask again.
		default:
			return err
		}
	}
}

// checkChroot returns an error when there is no chroot.
func (s *Session) checkChroot(ctx context.Context) error {
	_, err := s.Exists(ctx, "/")
	if errors.Is(err, zk.ErrNoNode) {
		return configError("chroot", s.cfg.chroot, "does not exist, and is made only with WithCreateChroot (session.Config.CreateChroot, zklock --create-chroot)")
	}
	return err
}

// createOne makes the znode full, which the chroot is part of. Below a parent that is closed to us the server refuses the
// create before it looks whether the znode exists, which then is all that matters.
func (s *Session) createOne(ctx context.Context, grouped bool, full string, data []byte, mode Mode, acl []zk.ACL) error {
	path := s.strip(full)
	b := &Batch{s: s, grouped: grouped}
	a := added(b, s.createFull(full, path, data, mode, acl))
	b.mayShare(a.r, touch{path, mode.ephemeral()})
	err := b.Do(ctx)
	if !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	look := ask(s, opExists, "exists", path, func(b []byte) []byte { return appendBool(appendString(b, full), false) }, (*decoder).stat)
	if _, lookErr := one(ctx, s, look); lookErr != nil {
		return err
	}
	return nil
}

// checkCreate is CheckPath for a znode to be made.
func checkCreate(path string, mode Mode) error {
	if mode == EphemeralSequential || mode == PersistentSequential {
		path += "0" // the name may be the number alone
	}
	return CheckPath(path)
}

// createFull is create for the path full, which the chroot is part of, and which has been checked.
func (s *Session) createFull(full, path string, data []byte, mode Mode, acl []zk.ACL) *Result[Created] {
	op := opCreate
	if mode == Container {
		op = opCreateContainer
	}
	a := &Result[Created]{r: newRequest(op, "create", path, func(b []byte) []byte {
		return appendInt(appendACL(appendBytes(appendString(b, full), data), acl), int32(mode))
	})}
	if mode == Container {
		a.r.containers = []container{{op: opFrame - 4, mode: len(a.r.frame) - 4}}
	}
	a.decode = func() (Created, error) {
		made, err := s.decodeCreated(a.r)
		s.ephemerals.settle(a.r, err, func(change) string { return made.Path })
		return made, err
	}
	return a
}

func (s *Session) decodeCreated(r *request) (Created, error) {
	d, err := r.result()
	if err != nil {
		return Created{}, err
	}
	path := d.string()
	if d.err != nil {
		return Created{}, s.garbled(r, d.err)
	}
	path = s.strip(path)
	if !mayHaveMade(r.path, path) {
		return Created{}, s.garbled(r, errOtherPath)
	}
	return Created{Path: path, Czxid: r.head.zxid}, nil
}

var errOtherPath = errors.New("the path of another znode")

// mayHaveMade reports whether a create that asked for want can have made path: it itself, or with a number behind it, of
// 32 bits and at least ten digits. Accepting another path would adopt a foreign znode and leak ours.
func mayHaveMade(want, path string) bool {
	number, ok := strings.CutPrefix(path, want)
	if !ok || number == "" {
		return ok
	}
	n, err := strconv.ParseInt(number, 10, 32)
	return err == nil && number == fmt.Sprintf("%010d", n)
}
