package zklock

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/text"
)

// A job's record is a directory:
//
//	PATH.done         data: recordFormat
//	PATH.done/every   the last run of Every
//	PATH.done/5f      data: recordFormat; a bucket for the keys whose SHA-256 begins with 5f
//	PATH.done/5f/KEY  the run of KEY, as KeyPath writes it
//
// It is no child of the lock's directory: there it would be in the lists of other libraries'
// contenders, and keep the directory from being empty, as WithContainer and the renewal of its
// counter need it. Buckets keep each list short; a znode whose data are not recordFormat is
// somebody else's, and nothing is written below it.
const (
	recordFormat = "zklock-job-1"

	maxKey = 128     // bytes
	maxRun = 4 << 10 // bytes of a run's data: more than any that is written
)

// znode returns the directory and the path of a key's run, or with "" of Every's.
func (j *Job) znode(key string) (dir, node string) {
	if key == "" {
		return j.record, j.record + "/" + contender.RecordLast
	}
	dir = fmt.Sprintf("%s/%02x", j.record, sha256.Sum256([]byte(key))[0])
	return dir, KeyPath(dir, key)
}

// read returns the run of key, as the session's server knows it. If there is none, the second
// result is false.
func (j *Job) read(ctx context.Context, s *session.Session, key string) (r recorded, there bool, err error) {
	_, node := j.znode(key)
	data, stat, err := s.Get(ctx, node)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return recorded{}, false, nil
	case err == nil:
		r, err = parseRun(node, data, stat)
	}
	if err == nil && r.Key != key {
		err = anotherKey(node, r)
	}
	return r, err == nil, err
}

func anotherKey(node string, r recorded) error {
	return fmt.Errorf("%w: %s has the run of another key, \"%s\"", ErrConflict, node, text.Foreign(r.Key))
}

// open makes dir, the record or a bucket, if it is missing, and makes sure that it is ours.
func (j *Job) open(ctx context.Context, s *session.Session, dir string) error {
	for {
		mine, stat, err := ours(ctx, s, dir)
		switch {
		case mine:
			return nil
		case err == nil:
			_, err = s.Set(ctx, dir, []byte(recordFormat), stat.Version)
		case errors.Is(err, zk.ErrNoNode):
			if dir == j.record {
				err = s.CreateAll(ctx, dir, []byte(recordFormat), session.Persistent, j.o.acl)
			} else if err = j.open(ctx, s, j.record); err == nil {
				_, err = s.Create(ctx, dir, []byte(recordFormat), session.Persistent, j.o.acl)
			}
		}
		again := errors.Is(err, session.ErrNoReply) && ctx.Err() == nil && s.Err() == nil
		if err != nil && !again && !failure.IsOne(err, zk.ErrBadVersion, zk.ErrNoNode, zk.ErrNodeExists) {
			return hide(err, ErrUnknownOutcome) // of no run
		}
	}
}

// ours reports whether dir, the record or a bucket, has our data. False: it is empty, as an
// operator makes it to give it its own access list. ErrConflict: it is somebody else's.
func ours(ctx context.Context, s *session.Session, dir string) (bool, zk.Stat, error) {
	data, stat, err := s.Get(ctx, dir)
	switch {
	case err != nil:
		return false, stat, err
	case string(data) == recordFormat:
		return true, stat, nil
	case len(data) == 0 && stat.Cversion == 0 && stat.EphemeralOwner == 0: // it never had children
		return false, stat, nil
	case len(data) == 0:
		return false, stat, fmt.Errorf("%w: %s, where a job's record would be, is the directory of a lock", ErrConflict, dir)
	}
	return false, stat, fmt.Errorf("%w: %s is not a job's record, and is left as it is: \"%s\"", ErrConflict, dir, text.Foreign(string(data)))
}

// pages passes the runs of each bucket, and Every's, to fn, until it returns an error: with their
// directory, and the version that it had before they were read. A page that has changed meanwhile,
// as fn's error says, is read again.
func (j *Job) pages(ctx context.Context, s *session.Session, fn func(dir string, at int32, page []recorded) error) error {
	err := s.Settle(ctx, j.record)
	var names []string
	if err == nil {
		_, _, err = ours(ctx, s, j.record)
	}
	if err == nil {
		names, _, err = s.List(ctx, j.record)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return needChroot(ctx, s)
	}
	for i := 0; i < len(names) && err == nil; {
		if err = j.page(ctx, s, names[i], fn); !failure.IsOne(err, zk.ErrBadVersion, zk.ErrNoNode) {
			i++
		} else {
			err = ctx.Err()
		}
	}
	return err
}

// page passes the runs in one child of the record to fn.
func (j *Job) page(ctx context.Context, s *session.Session, name string, fn func(dir string, at int32, page []recorded) error) error {
	dir, keys := j.record, []string{name}
	_, err := strconv.ParseUint(name, 16, 8)
	bucket := err == nil && len(name) == contender.RecordBucket
	if !bucket && name != contender.RecordLast {
		return nil // a lock's contender, say, which may be here as well
	}
	if bucket {
		dir += "/" + name
	}
	stat, err := s.Exists(ctx, dir)
	if err == nil && bucket {
		keys, _, err = s.List(ctx, dir)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil // deleted meanwhile
	}
	var page []recorded
	if err == nil {
		page, err = readRuns(ctx, s, dir, keys)
	}
	if err == nil {
		err = fn(dir, stat.Version, page)
	}
	return err
}

// readRuns reads the runs in dir; those that were deleted meanwhile are left out.
func readRuns(ctx context.Context, s *session.Session, dir string, names []string) (page []recorded, err error) {
	nodes, err := s.ReadBelow(ctx, dir, names, func(stat zk.Stat) bool { return stat.DataLength <= maxRun })
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			continue
		}
		err = n.Err
		var r recorded
		if err == nil {
			r, err = parseRun(dir+"/"+text.Foreign(names[i]), n.Data, n.Stat)
		}
		if err == nil && r.Key != "" && dir+"/"+names[i] != KeyPath(dir, r.Key) {
			err = anotherKey(dir+"/"+text.Foreign(names[i]), r)
		}
		if err != nil {
			return nil, err
		}
		page = append(page, r)
	}
	return page, err
}

// remove deletes a run that was read when dir had version at. It sets dir's data too: a run that
// another client has deleted and made again may have the version that was read, but then dir has
// another one.
func remove(ctx context.Context, s *session.Session, dir string, at int32, node string, version int32) error {
	_, err := s.Multi(ctx, session.OpSet{Path: dir, Data: []byte(recordFormat), Version: at}, session.OpDelete{Path: node, Version: version})
	return err
}

// needChroot is for what was not found: below a misspelt chroot there is nothing.
func needChroot(ctx context.Context, s *session.Session) error {
	_, err := s.Exists(ctx, "/")
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: the chroot of the connect string does not exist", ErrInvalid)
	}
	return err
}
