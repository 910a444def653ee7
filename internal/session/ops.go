package session

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// The operations below have this contract in common.
//
// They block for one round trip and, while there is no connection, until there is one. They return
// promptly when ctx or the session ends. Calls may be concurrent; those of one goroutine, one after
// the other, are carried out in that order. For several at once see Batch.
//
// The error is nil if the server has carried the operation out. Otherwise it is
//
//   - a refusal by the server: the driver's error (zk.ErrNoNode, …) inside an OpError;
//   - one that matches ErrUnknownOutcome, if a write may have been carried out: its reply was lost,
//     or ctx ended after it was sent, or a server in trouble answered it. A write is sent once, and
//     a read again when the connection breaks;
//   - ErrSessionFull, if a write would make ephemeral znodes for which the session has no room. It
//     was not sent;
//   - ErrPath, if the path is bad. Nothing was sent. Where a znode is made, and in a multi, all
//     rules of CheckPath apply. Elsewhere only those on slashes and relative components do, since
//     other clients have named the znodes.

// None is the answer to a request that only succeeds or fails.
type None struct{}

func nothing(*wire.Decoder) None { return None{} }

// Data are a znode's data with its Stat, from one read.
type Data struct {
	Bytes []byte
	Stat  zk.Stat
}

// Children are the names of a znode's children, in no order, with its Stat, from one read. The
// names share the reply's memory: clone one that is kept.
type Children struct {
	Names []string
	Stat  zk.Stat
}

// ACL is a znode's access list with its Stat, from one read.
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
func (s *Session) Set(
	ctx context.Context, path string, data []byte, version int32,
) (zk.Stat, error) {
	return one(ctx, s, ask(s, wire.OpSetData, "set", path, func(b []byte) []byte {
		return wire.AppendInt(wire.AppendBytes(wire.AppendString(b, s.cfg.join(path)), data),
			version)
	}, (*wire.Decoder).Stat))
}

// List returns the names of a znode's children, in no order.
func (s *Session) List(ctx context.Context, path string) ([]string, zk.Stat, error) {
	c, err := one(ctx, s, s.list(path, false))
	return c.Names, c.Stat, err
}

// Exists returns a znode's Stat; if there is no znode, the error matches zk.ErrNoNode.
func (s *Session) Exists(ctx context.Context, path string) (zk.Stat, error) {
	return one(ctx, s, s.exists(path))
}

// ACL returns a znode's access list.
func (s *Session) ACL(ctx context.Context, path string) ([]zk.ACL, zk.Stat, error) {
	a, err := one(ctx, s, s.acl(path))
	return a.List, a.Stat, err
}

// SetACL replaces a znode's access list; version −1 means any.
func (s *Session) SetACL(
	ctx context.Context, path string, acl []zk.ACL, version int32,
) (zk.Stat, error) {
	return one(ctx, s, ask(s, wire.OpSetACL, "set ACL", path, func(b []byte) []byte {
		return wire.AppendInt(wire.AppendACL(wire.AppendString(b, s.cfg.join(path)), acl), version)
	}, (*wire.Decoder).Stat))
}

// Sync waits until the connected server has caught up with the leader: reads after it see what the
// leader had carried out when it was asked. That leaves a gap of milliseconds: a client of a
// follower may have its answer just before the leader itself has carried out the write, and a
// leader does not wait for that when a client of its own asks for a sync. (ZooKeeper 3.8.0: 24 of
// 3,000 reads behind such a sync missed a write that was acknowledged elsewhere, and none on
// another follower.) Reads behind a write of one's own miss nothing that was acknowledged before.
func (s *Session) Sync(ctx context.Context, path string) error {
	_, err := one(ctx, s, s.sync(path))
	return err
}

func (s *Session) delete(path string, version int32) *Result[None] {
	a := ask(s, wire.OpDelete, "delete", path, func(b []byte) []byte {
		return wire.AppendInt(wire.AppendString(b, s.cfg.join(path)), version)
	},
		nothing)
	if a.r != nil {
		a.r.AddTouch(path, pipeline.Deletes)
	}
	return a
}

func (s *Session) get(path string) *Result[Data] {
	return ask(s, wire.OpGetData, "get", path, func(b []byte) []byte {
		return wire.AppendBool(wire.AppendString(b, s.cfg.join(path)), false)
	},
		func(d *wire.Decoder) Data { return Data{d.Bytes(), d.Stat()} })
}

func (s *Session) list(path string, watch bool) *Result[Children] {
	name := "list"
	if watch {
		name = "watch children"
	}
	return ask(s, wire.OpGetChildren2, name, path, func(b []byte) []byte {
		return wire.AppendBool(wire.AppendString(b, s.cfg.join(path)), watch)
	},
		func(d *wire.Decoder) Children { return Children{d.Names(), d.Stat()} })
}

func (s *Session) exists(path string) *Result[zk.Stat] {
	return ask(s, wire.OpExists, "exists", path, func(b []byte) []byte {
		return wire.AppendBool(wire.AppendString(b, s.cfg.join(path)), false)
	},
		(*wire.Decoder).Stat)
}

func (s *Session) acl(path string) *Result[ACL] {
	return ask(s, wire.OpGetACL, "get ACL", path, func(b []byte) []byte {
		return wire.AppendString(b, s.cfg.join(path))
	},
		func(d *wire.Decoder) ACL { return ACL{d.ACL(), d.Stat()} })
}

func (s *Session) sync(path string) *Result[None] {
	return ask(s, wire.OpSync, "sync", path, func(b []byte) []byte {
		return wire.AppendString(b, s.cfg.join(path))
	}, nothing)
}

func opOf(m Mode) int32 {
	if m == Container {
		return wire.OpCreateContainer
	}
	return wire.OpCreate
}

// Create makes a znode. Its parent must exist.
func (s *Session) Create(
	ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL,
) (Created, error) {
	return one(ctx, s, s.create(path, data, mode, acl))
}

func (s *Session) create(path string, data []byte, mode Mode, acl []zk.ACL) *Result[Created] {
	if err := checkCreate(path, mode); err != nil {
		return &Result[Created]{Err: err}
	}
	return s.createFull(s.cfg.join(path), path, data, mode, acl)
}

// CreateAll makes path and its missing parents. The parents are persistent; path is of the given
// mode, Persistent or Container. A missing chroot is an error (ErrConfig), or with
// Config.CreateChroot is made as well. A znode that exists is left as it is, whatever its kind. Any
// number of clients may do this at once.
func (s *Session) CreateAll(
	ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL,
) error {
	return s.createAll(ctx, s.Batch, path, data, mode, acl)
}

// CreateAllGrouped is CreateAll whose creates may be members of a group (see Grouped).
func (s *Session) CreateAllGrouped(
	ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL,
) error {
	return s.createAll(ctx, s.Grouped, path, data, mode, acl)
}

func (s *Session) createAll(
	ctx context.Context, batch func() *Batch, path string, data []byte, mode Mode, acl []zk.ACL,
) error {
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
	return s.createPath(ctx, batch, s.cfg.join(path), chroot, data, mode, acl)
}

// createPath makes the znode full and its missing parents, but not the first chroot bytes of its
// path. It tries full first: usually only that is missing, and the parents may be closed to us.
func (s *Session) createPath(
	ctx context.Context, batch func() *Batch, full string, chroot int, data []byte, mode Mode,
	acl []zk.ACL,
) error {
	var before Doubt
	up := strings.LastIndexByte(full, '/') // full[:up] is the parent
	for {
		err := s.createOne(ctx, batch, full, data, mode, acl)
		switch {
		case err == nil || errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode) && up == 0:
			return fmt.Errorf("session: create %s: the root is missing: %w", full, err)
		case errors.Is(err, zk.ErrNoNode) && up <= chroot:
			err = s.checkChroot(ctx) // it is nil if another client has made the chroot meanwhile
		case errors.Is(err, zk.ErrNoNode):
			err = s.createPath(ctx, batch, full[:up], chroot, nil, Persistent, acl)
		case errors.Is(err, failure.ErrNoReply) && ctx.Err() == nil && s.Err() == nil:
			before.Note(err)
			err = nil // repeat the create: if it was carried out, the znode exists
		case errors.Is(err, failure.ErrNoReply):
			err = s.ended(ctx, err)
		}
		if err != nil {
			return before.Add(err)
		}
	}
}

func (s *Session) checkChroot(ctx context.Context) error {
	_, err := s.Exists(ctx, "/")
	if errors.Is(err, zk.ErrNoNode) {
		return configError("chroot", s.cfg.chroot,
			"does not exist, and is made only with WithCreateChroot (session.Config.CreateChroot, zklock --create-chroot)")
	}
	return err
}

// createOne makes the znode full, a path with the chroot. Below a parent that is closed to us, the
// server refuses the create even if the znode exists, which is all that matters then.
func (s *Session) createOne(
	ctx context.Context, batch func() *Batch, full string, data []byte, mode Mode, acl []zk.ACL,
) error {
	path := s.cfg.strip(full)
	b := batch()
	added(b, s.createFull(full, path, data, mode, acl))
	err := b.Do(ctx)
	if !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	exists := ask(s, wire.OpExists, "exists", path, func(b []byte) []byte {
		return wire.AppendBool(wire.AppendString(b, full), false)
	}, (*wire.Decoder).Stat)
	if _, existsErr := one(ctx, s, exists); existsErr != nil {
		return err
	}
	return nil
}

// EphemeralBytes returns how much of the room for ephemeral znodes is used (ErrSessionFull): by
// ephemeral znodes that exist or may exist.
func (s *Session) EphemeralBytes() int { return s.ephemerals.Bytes() }

// Found records the outcome of creates of path, sequential and ephemeral, that was unknown, after a
// search: made is the znode's path and czxid its czxid, or "" when there is none. No other caller
// may use path.
func (s *Session) Found(path, made string, czxid int64) { s.ephemerals.Found(path, made, czxid) }

// Gone records that the ephemeral znode path is gone for good, by other evidence than an answer
// about it: for example, a transaction's reply was lost, and another znode proves that it was
// carried out.
func (s *Session) Gone(path string) { s.ephemerals.Gone(path, math.MaxInt64, true) }

func checkCreate(path string, mode Mode) error {
	isNumbered := mode == EphemeralSequential || mode == PersistentSequential
	if isNumbered && (strings.HasSuffix(path, "/") || strings.HasSuffix(path, ".")) {
		path += "0" // the server appends a number, so "/a/" and "/a/." name a child
	}
	return CheckPath(path)
}

func (s *Session) createFull(
	full, path string, data []byte, mode Mode, acl []zk.ACL,
) *Result[Created] {
	a := newResult[Created](opOf(mode), "create", path)
	appendCreate(a.r, full, path, data, mode, acl)
	a.decode = (*Session).resolveCreate
	return a
}

// resolveCreate decodes the reply to a create, and keeps the count of ephemeral znodes up to date.
func (s *Session) resolveCreate(r *pipeline.Request) (Created, error) {
	made, err := s.decodeCreated(r)
	s.ephemerals.Answered(r, err, func(int) string { return made.Path })
	return made, err
}

// appendCreate encodes a create, whose opcode is in the frame already.
func appendCreate(r *pipeline.Request, full, path string, data []byte, mode Mode, acl []zk.ACL) {
	r.Frame = wire.AppendInt(wire.AppendACL(wire.AppendBytes(wire.AppendString(r.Frame, full),
		data), acl), int32(mode))
	r.AddTouch(path, effectOf(mode))
}

func (s *Session) decodeCreated(r *pipeline.Request) (Created, error) {
	var d wire.Decoder
	if err := r.Result(&d); err != nil {
		return Created{}, err
	}
	path := s.cfg.strip(d.Text())
	if d.Err == nil && !mayHaveMade(r.Path, path) {
		d.Err = errOtherPath
	}
	if d.Err != nil {
		return Created{}, r.Garbled(d.Err)
	}
	return Created{Path: path, Czxid: r.Header.Zxid}, nil
}

var errOtherPath = errors.New("the path of another znode")

// mayHaveMade reports whether a create of want can have made path: want itself, or want with a
// number of 32 bits and at least ten digits. Accepting another path would adopt a foreign znode and
// leak ours.
func mayHaveMade(want, path string) bool {
	number, ok := strings.CutPrefix(path, want)
	if !ok || number == "" {
		return ok
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || number[0] == '+' {
		return false
	}
	isNegative := number[0] == '-'
	hasLeadingZero := strings.TrimPrefix(number, "-")[0] == '0'
	// Below ten characters the server fills up with zeros.
	return isNegative == (n < 0) && (len(number) == 10 || len(number) > 10 && !hasLeadingZero)
}

// Grants reports whether a znode that this session makes with acl certainly grants perm to this
// session: to all clients, to its creator (scheme "auth"), or to a user of its digest credentials.
//
// If it returns false, perm may still be granted, by another scheme. In FIPS 140-only mode, which
// forbids SHA-1, that includes the scheme digest: the session can't recognize its own entry then.
func (s *Session) Grants(acl []zk.ACL, perm int32) bool {
	return slices.ContainsFunc(acl, func(a zk.ACL) bool {
		if a.Perms&perm != perm {
			return false
		}
		switch a.Scheme {
		case "world":
			return a.ID == "anyone"
		case "auth":
			return true // or else the create is refused
		case "digest":
			for _, auth := range s.cfg.Auth {
				if id, known := digestID(auth); known && id == a.ID {
					return true
				}
			}
		}
		return false
	})
}

// digestID returns how access lists name the user of a digest credential. known is false for
// another scheme, and where FIPS 140-only mode forbids SHA-1; zk.DigestACL would panic there.
func digestID(a link.Auth) (id string, known bool) {
	if a.Scheme != "digest" {
		return "", false
	}
	hash := sha1.New()
	if _, err := hash.Write(a.Credential); err != nil {
		return "", false
	}
	user, _, _ := bytes.Cut(a.Credential, []byte(":"))
	return string(user) + ":" + base64.StdEncoding.EncodeToString(hash.Sum(nil)), true
}

func effectOf(m Mode) pipeline.Effect {
	switch m {
	case Ephemeral:
		return pipeline.Makes
	case EphemeralSequential:
		return pipeline.MakesNumbered
	}
	return pipeline.NoEffect
}
