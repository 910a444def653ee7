package zklock

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

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
// It does not stand below the lock's directory. There it would be in the lists of other libraries'
// contenders. And the directory would never be empty: WithContainer and the renewal of its counter
// rely on that.
//
// Buckets keep each list short. A znode whose data are not recordFormat belongs to another program,
// and nothing is written below it.
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

// read returns the run of key, as the session's server knows it. there is false if there is none.
func (j *Job) read(
	ctx context.Context, s *session.Session, key string,
) (r recorded, there bool, err error) {
	_, node := j.znode(key)
	data, stat, err := s.Get(ctx, node)
	if errors.Is(err, zk.ErrNoNode) {
		return recorded{}, false, nil
	}
	if err != nil {
		return recorded{}, false, err
	}
	r, err = parseRun(node, data, stat)
	if err != nil {
		return recorded{}, false, err
	}
	if r.Key != key {
		return recorded{}, false, anotherKey(node, r)
	}
	return r, true, nil
}

func anotherKey(node string, r recorded) error {
	return fmt.Errorf("%w: %s has the run of another key, \"%s\"", ErrConflict, node,
		text.Foreign(r.Key))
}

// open makes dir, the record or a bucket, if it is missing, and makes sure that it is ours.
func (j *Job) open(ctx context.Context, s *session.Session, dir string) error {
	for {
		mine, err := j.openOnce(ctx, s, dir)
		if mine {
			return nil
		}
		hasChanged := failure.IsOne(err, zk.ErrBadVersion, zk.ErrNoNode, zk.ErrNodeExists)
		lostReply := errors.Is(err, session.ErrNoReply) && ctx.Err() == nil && s.Err() == nil
		if err != nil && !hasChanged && !lostReply {
			return hide(err, ErrUnknownOutcome) // a run's outcome is not: none was written
		}
	}
}

// openOnce reports whether dir is ours already. If it is not, openOnce makes it so.
func (j *Job) openOnce(ctx context.Context, s *session.Session, dir string) (mine bool, err error) {
	mine, stat, err := checkRecord(ctx, s, dir)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return false, j.create(ctx, s, dir)
	case err != nil:
		return false, err
	case mine:
		return true, nil
	}
	_, err = s.Set(ctx, dir, []byte(recordFormat), stat.Version)
	return false, err
}

// create makes dir, which is missing.
func (j *Job) create(ctx context.Context, s *session.Session, dir string) error {
	if dir == j.record {
		return s.CreateAll(ctx, dir, []byte(recordFormat), session.Persistent, j.o.acl)
	}
	if err := j.open(ctx, s, j.record); err != nil {
		return err
	}
	_, err := s.Create(ctx, dir, []byte(recordFormat), session.Persistent, j.o.acl)
	return err
}

// checkRecord reads the data of dir, the record or a bucket. mine is true if it has ours. It has
// none if an operator has made it, to give it its own access list: then it may become ours.
// checkRecord returns ErrConflict if dir belongs to another program or is the directory of a lock.
func checkRecord(
	ctx context.Context, s *session.Session, dir string,
) (mine bool, stat zk.Stat, err error) {
	data, stat, err := s.Get(ctx, dir)
	if err != nil {
		return false, stat, err
	}
	if string(data) == recordFormat {
		return true, stat, nil
	}
	if len(data) > 0 {
		return false, stat,
			fmt.Errorf("%w: %s is not a job's record, and is left as it is: \"%s\"",
				ErrConflict, dir, text.Foreign(string(data)))
	}
	hadChildren := stat.Cversion != 0
	if hadChildren || stat.EphemeralOwner != 0 {
		return false, stat,
			fmt.Errorf("%w: %s, where a job's record would be, is another program's znode or the "+
				"directory of a lock", ErrConflict, dir)
	}
	return false, stat, nil
}

// page is what one directory of a record has: a bucket, or the record itself with Every's run.
type page struct {
	dir     string
	version int32 // of dir, from before the runs were read
	runs    []recorded
}

// pages passes each page of the record to fn, until fn returns an error. A page that has changed
// since it was read, as fn's error says, is read again.
func (j *Job) pages(ctx context.Context, s *session.Session, fn func(page) error) error {
	names, err := j.pageNames(ctx, s)
	if errors.Is(err, zk.ErrNoNode) {
		return needChroot(ctx, s)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		err := j.page(ctx, s, name, fn)
		for failure.IsOne(err, zk.ErrBadVersion, zk.ErrNoNode) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			err = j.page(ctx, s, name, fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pageNames lists the record.
func (j *Job) pageNames(ctx context.Context, s *session.Session) ([]string, error) {
	if err := s.Settle(ctx, j.record); err != nil {
		return nil, err
	}
	if _, _, err := checkRecord(ctx, s, j.record); err != nil {
		return nil, err
	}
	names, _, err := s.List(ctx, j.record)
	return names, err
}

// page passes the runs in the record's child of that name to fn. A child that is neither a bucket
// nor Every's run is skipped: it may be a lock's contender, for example.
func (j *Job) page(
	ctx context.Context, s *session.Session, name string, fn func(page) error,
) error {
	p := page{dir: j.record}
	isBucket := contender.IsRecordBucket(name)
	if !isBucket && name != contender.RecordLast {
		return nil
	}
	if isBucket {
		p.dir += "/" + name
	}
	stat, err := s.Exists(ctx, p.dir)
	keys := []string{name}
	if err == nil && isBucket {
		keys, _, err = s.List(ctx, p.dir)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil // it was deleted meanwhile
	}
	if err != nil {
		return err
	}
	p.version = stat.Version
	p.runs, err = readRuns(ctx, s, p.dir, keys)
	if err != nil {
		return err
	}
	return fn(p)
}

// readRuns returns the runs in dir, without those that were deleted meanwhile.
func readRuns(
	ctx context.Context, s *session.Session, dir string, names []string,
) ([]recorded, error) {
	mayBeRun := func(stat zk.Stat) bool { return stat.DataLength <= maxRun }
	nodes, err := s.ReadBelow(ctx, dir, names, mayBeRun)
	if err != nil {
		return nil, err
	}
	var runs []recorded
	for i, n := range nodes {
		switch {
		case errors.Is(n.Err, zk.ErrNoNode):
			continue
		case n.Err != nil:
			return nil, n.Err
		case !mayBeRun(n.Stat): // its data were not read
			return nil,
				fmt.Errorf("%w: %s is not a run of a job, and is left as it is: it has %d bytes",
					ErrConflict, dir+"/"+text.Foreign(names[i]), n.Stat.DataLength)
		}
		r, err := parseRunOf(dir, names[i], n.Data, n.Stat)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// parseRunOf reads the run in the child of dir with that name.
func parseRunOf(dir, name string, data []byte, stat zk.Stat) (recorded, error) {
	shown := dir + "/" + text.Foreign(name)
	r, err := parseRun(shown, data, stat)
	if err != nil {
		return recorded{}, err
	}
	if r.Key != "" && dir+"/"+name != KeyPath(dir, r.Key) {
		return recorded{}, anotherKey(shown, r)
	}
	return r, nil
}

// remove deletes a run that was read when dir had version at. It sets dir's data too: a run that
// another client has deleted and made again may have the version that was read, but then dir has
// another one.
func remove(
	ctx context.Context, s *session.Session, dir string, at int32, node string, version int32,
) error {
	_, err := s.Multi(ctx,
		session.OpSet{Path: dir, Data: []byte(recordFormat), Version: at},
		session.OpDelete{Path: node, Version: version})
	return err
}

// needChroot returns an error if the connect string's chroot does not exist. Call it when a znode
// was not found: below a misspelt chroot there is none.
func needChroot(ctx context.Context, s *session.Session) error {
	_, err := s.Exists(ctx, "/")
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: the chroot of the connect string does not exist", ErrInvalid)
	}
	return err
}
