package zklock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

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
// It is no child of the lock's directory: there it would be in the lists of other libraries' contenders, and keep the
// directory from being empty, as WithContainer and the renewal of its counter need it. Buckets keep each list short; a znode
// whose data are not recordFormat is somebody else's, and nothing is written below it.
const (
	recordFormat = "zklock-job-1"

	maxKey = 128     // bytes
	maxRun = 4 << 10 // bytes of a run's data: more than any that is written
)

// JobRun is one run of a Job, as its record has it.
type JobRun struct {
	Key   string    // of Once; "" for Every
	Owner string    // WithOwner, cut to 64 characters
	Host  string    // cut likewise
	PID   int       // of the process
	Token Token     // of the hold under which it ran
	Began time.Time // by the ensemble's clock, just before the function was called
	Mine  bool      // it was made by the call that returns it
}

// String names the key, the client and the time, escaped for a terminal.
func (r JobRun) String() string {
	if r == (JobRun{}) {
		return "no run"
	}
	s := fmt.Sprintf("by %s, begun %s, token %d", contender.Signature(r.Owner, r.Host, r.PID), r.Began.UTC().Format(time.RFC3339), r.Token)
	if r.Key != "" {
		s = text.Foreign(r.Key) + " " + s
	}
	return s
}

func checkKey(key string) error {
	if key == "" || len(key) > maxKey || text.Clean(key) != key {
		return fmt.Errorf("%w: key \"%s\": is not 1 to %d bytes of printable UTF-8", ErrInvalid, text.Foreign(key), maxKey)
	}
	return nil
}

// recorded is a run as it was read.
type recorded struct {
	JobRun
	data     []byte
	version  int32
	underWay bool // at most once: it has begun, and is not known to have ended
}

// znode returns the directory and the path of a key's run, or with "" of Every's.
func (j *Job) znode(key string) (dir, node string) {
	if key == "" {
		return j.record, j.record + "/" + contender.RecordLast
	}
	dir = fmt.Sprintf("%s/%02x", j.record, sha256.Sum256([]byte(key))[0])
	return dir, KeyPath(dir, key)
}

// read returns the run of key, as the session's server knows it. False: there is none.
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

// remove deletes a run that was read when dir had version at. It sets dir's data too: a run that another client has deleted
// and made again may have the version that was read, but then dir has another one.
func remove(ctx context.Context, s *session.Session, dir string, at int32, node string, version int32) error {
	_, err := s.Multi(ctx, session.OpSet{Path: dir, Data: []byte(recordFormat), Version: at}, session.OpDelete{Path: node, Version: version})
	return err
}

type runJSON struct {
	Key   string `json:"key,omitempty"`
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Token Token  `json:"token"`
	Took  int64  `json:"took_ms"` // from the run's beginning to the znode's last change

	UnderWay bool `json:"under_way,omitempty"`
}

func (r runJSON) encode() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // which would make a key six times as long
	if err := enc.Encode(r); err != nil {
		panic(err) // integers and strings always marshal
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// parseRun reads a run; what is not one, to the letter, is ErrConflict.
func parseRun(node string, data []byte, stat zk.Stat) (recorded, error) {
	var r runJSON
	err := json.Unmarshal(data, &r)
	switch {
	case err != nil:
	case !bytes.Equal(r.encode(), data):
		err = errors.New("it is written otherwise")
	case r.Host == "" || r.PID <= 0 || r.Token <= 0 || r.Took < 0 || r.Took > stat.Mtime || r.Key != "" && checkKey(r.Key) != nil:
		err = errors.New("its values are out of range")
	}
	if err != nil {
		return recorded{}, fmt.Errorf("%w: %s is not a run of a job, and is left as it is: %v: \"%s\"", ErrConflict, node, err, text.Foreign(string(data)))
	}
	began := time.UnixMilli(stat.Mtime - r.Took)
	return recorded{JobRun{r.Key, r.Owner, r.Host, r.PID, r.Token, began, false}, data, stat.Version, r.UnderWay}, nil
}

// ours reports whether dir, the record or a bucket, has our data. False: it is empty, as an operator makes it to give it
// its own access list. ErrConflict: it is somebody else's.
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

// needChroot is for what was not found: below a misspelt chroot there is nothing.
func needChroot(ctx context.Context, s *session.Session) error {
	_, err := s.Exists(ctx, "/")
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: the chroot of the connect string does not exist", ErrInvalid)
	}
	return err
}

// pages passes the runs of each bucket, and Every's, to fn, until it returns an error: with their directory, and the version that
// it had before they were read. A page that has changed meanwhile, as fn's error says, is read again.
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

// recording is the record as the holder of the lock knows it, and the run that it adds.
type recording struct {
	j         *Job
	h         *Hold
	dir, node string
	key       string
	version   int32 // of the znode; -1: there is none
}

// begin decides whether fn is to be called: not if the record has the key or, with d, a run that serves this call. It uses
// the hold's session, whose server has seen the end of the holder before, and so its writes.
func (r *recording) begin(ctx context.Context, d time.Duration) (run JobRun, done bool, err error) {
	found, there, err := r.read(ctx)
	done = there && d == 0
	if there && d > 0 {
		var own zk.Stat
		if own, err = r.h.ctx.s.Exists(ctx, r.h.Node()); err == nil {
			done = time.UnixMilli(own.Ctime).Sub(found.Began) < d
		}
		if errors.Is(err, zk.ErrNoNode) {
			err = errors.Join(ErrNodeDeleted, r.h.Check(ctx))
		}
	}
	if err == nil && !done && !there && r.refuses(r.j.o.acl) {
		err = fmt.Errorf("%w: WithACL does not grant this client READ, WRITE and CREATE, which a job's record needs", zk.ErrNoAuth)
	}
	if err != nil || done {
		return found.JobRun, done, err
	}
	return JobRun{}, false, r.j.open(ctx, r.h.ctx.s, r.dir)
}

// refuses reports whether the record, made with acl, certainly could not be written after the function has been called.
func (r *recording) refuses(acl []zk.ACL) bool {
	known := !slices.ContainsFunc(acl, func(a zk.ACL) bool { return !slices.Contains([]string{"world", "auth", "digest"}, a.Scheme) })
	return known && !r.h.ctx.s.Grants(acl, zk.PermRead|zk.PermWrite|zk.PermCreate)
}

func (r *recording) read(ctx context.Context) (found recorded, there bool, err error) {
	found, there, err = r.j.read(ctx, r.h.ctx.s, r.key)
	if r.version = -1; there {
		r.version = found.version
	}
	return found, there, err
}

// slow is the longest that a write may take. After a longer one, its Mtime less runJSON.Took is not when the run began.
const slow = time.Second

// write records the run that began then. A write that was slow, for want of a connection say, is made again for its time.
func (r *recording) write(ctx context.Context, began time.Time, underWay bool) (JobRun, error) {
	sent := time.Now()
	run, err := r.put(ctx, began, underWay)
	if err == nil && time.Since(sent) > slow {
		if again, err := r.put(ctx, began, underWay); err == nil {
			run = again
		}
	}
	return run, err
}

// end records that a run of AtMostOnce has ended. If it can't, say because the run was forgotten meanwhile, the record stays as
// it is: whoever asks for the run waits for the lock to see what became of it.
func (r *recording) end(ctx context.Context, began time.Time) (run JobRun, ok bool) {
	for first := true; ; first = false {
		sent, data := time.Now(), r.data(began, false)
		resps, err := r.h.Multi(ctx, session.OpSet{Path: r.node, Data: data, Version: r.version})
		switch {
		case err == nil:
			run, err = r.mine(data, *resps[0].Stat)
			ok = err == nil
		case !errors.Is(err, session.ErrNoReply) || r.h.Err() != nil:
			return run, ok
		}
		if ok && (!first || time.Since(sent) <= slow) { // as write: once more, for its time
			return run, true
		}
	}
}

func (r *recording) data(began time.Time, underWay bool) []byte {
	return runJSON{r.key, text.Short(r.j.o.owner, contender.MaxWho), text.Short(contender.Hostname(), contender.MaxWho), os.Getpid(),
		r.h.Token(), time.Since(began).Milliseconds(), underWay}.encode()
}

// mine returns the run that our write has left.
func (r *recording) mine(data []byte, stat zk.Stat) (JobRun, error) {
	made, err := parseRun(r.node, data, stat)
	made.Mine, r.version = true, stat.Version
	return made.JobRun, err
}

// put writes the run. A write whose reply is lost is made again: if the first one was carried out, the leader refuses the second,
// and the record has the run.
func (r *recording) put(ctx context.Context, began time.Time, underWay bool) (JobRun, error) {
	data := r.data(began, underWay)
	var before session.Doubt
	for {
		ops := []session.Op{session.OpSet{Path: r.node, Data: data, Version: r.version}}
		if r.version < 0 { // the answer to a create has no Stat: the data are set once more, for the time
			ops = []session.Op{session.OpCreate{Path: r.node, Data: data, ACL: r.j.o.acl}, session.OpSet{Path: r.node, Data: data}}
		}
		resps, err := r.h.Multi(ctx, ops...)
		before.Note(err)
		switch {
		case err == nil:
			return r.mine(data, *resps[len(resps)-1].Stat)
		case errors.Is(err, session.ErrNoReply) && ctx.Err() == nil && r.h.Err() == nil:
			continue // that can still be found out
		case !failure.IsOne(err, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNoNode):
			return JobRun{}, before.Add(err)
		}
		// The run was written by our unanswered write, or the record changed by a client that does not hold the lock.
		s := r.h.ctx.s
		if err = s.Sync(ctx, r.node); err == nil {
			err = r.j.open(ctx, s, r.dir)
		}
		var found recorded
		var there bool
		if err == nil {
			found, there, err = r.read(ctx)
		}
		if err != nil {
			return JobRun{}, before.Add(err)
		}
		if there && bytes.Equal(found.data, data) {
			found.Mine = true
			return found.JobRun, nil
		}
		before = session.Doubt{} // what was unanswered was not carried out, and can't be any more
	}
}
