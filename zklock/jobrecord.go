package zklock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
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
	data    []byte
	version int32
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
		err = fmt.Errorf("%w: %s has the run of another key, \"%s\"", ErrConflict, node, text.Foreign(r.Key))
	}
	return r, err == nil, err
}

type runJSON struct {
	Key   string `json:"key,omitempty"`
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Token Token  `json:"token"`
	Took  int64  `json:"took_ms"` // from the run's beginning to the znode's last change
}

// parseRun reads a run; what is not one is ErrConflict.
func parseRun(node string, data []byte, stat zk.Stat) (recorded, error) {
	var r runJSON
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(&r)
	switch {
	case err != nil:
	case dec.More():
		err = errors.New("something follows it")
	case r.Token <= 0 || r.Took < 0 || r.Key != "" && checkKey(r.Key) != nil:
		err = errors.New("its values are out of range")
	}
	if err != nil {
		return recorded{}, fmt.Errorf("%w: %s is not a run of a job, and is left as it is: %v: \"%s\"", ErrConflict, node, err, text.Foreign(string(data)))
	}
	began := time.UnixMilli(stat.Mtime).Add(-time.Duration(r.Took) * time.Millisecond)
	return recorded{JobRun{r.Key, r.Owner, r.Host, r.PID, r.Token, began, false}, data, stat.Version}, nil
}

// ours reports whether dir, the record or a bucket, has our data. False: it is empty, as an operator makes it who gives it
// its own access list. ErrConflict: it is somebody else's.
func ours(dir string, data []byte, stat zk.Stat) (bool, error) {
	switch {
	case string(data) == recordFormat:
		return true, nil
	case len(data) == 0 && stat.Cversion == 0 && stat.EphemeralOwner == 0: // it never had children
		return false, nil
	case len(data) == 0:
		return false, fmt.Errorf("%w: %s, where a job's record would be, is the directory of a lock", ErrConflict, dir)
	}
	return false, fmt.Errorf("%w: %s is not a job's record, and is left as it is: \"%s\"", ErrConflict, dir, text.Foreign(string(data)))
}

// open makes dir, the record or a bucket, if it is missing, and makes sure that it is ours.
func (j *Job) open(ctx context.Context, s *session.Session, dir string) error {
	for {
		data, stat, err := s.Get(ctx, dir)
		mine := false
		if err == nil {
			mine, err = ours(dir, data, stat)
		}
		switch {
		case mine:
			return nil
		case err == nil:
			_, err = s.Set(ctx, dir, []byte(recordFormat), stat.Version)
		case errors.Is(err, zk.ErrNoNode):
			if err = nil; dir != j.record {
				err = j.open(ctx, s, j.record)
			}
			if err == nil {
				err = s.CreateAll(ctx, dir, []byte(recordFormat), session.Persistent, j.o.acl)
			}
		}
		again := errors.Is(err, ErrUnknownOutcome) && ctx.Err() == nil && s.Err() == nil
		if err != nil && !again && !isAny(err, zk.ErrBadVersion, zk.ErrNoNode) {
			return err
		}
	}
}

// pages passes the runs of each bucket, and Every's, to fn, until it returns an error.
func (j *Job) pages(ctx context.Context, s *session.Session, fn func([]recorded) error) error {
	data, stat, err := s.Get(ctx, j.record)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err == nil {
		_, err = ours(j.record, data, stat)
	}
	var names []string
	if err == nil {
		names, _, err = s.List(ctx, j.record)
	}
	for _, name := range names {
		page := []recorded(nil)
		switch {
		case err != nil:
		case name == contender.RecordLast:
			page, err = readRuns(ctx, s, j.record, []string{name})
		case len(name) == contender.RecordBucket: // a lock's contenders, which may be here as well, have longer names
			var keys []string
			dir := j.record + "/" + name
			if keys, _, err = s.List(ctx, dir); err == nil {
				page, err = readRuns(ctx, s, dir, keys)
			}
		}
		if err == nil {
			err = fn(page)
		}
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

func newRecording(j *Job, h *Hold, key string) *recording {
	dir, node := j.znode(key)
	return &recording{j, h, dir, node, key, -1}
}

// begin decides whether fn is to be called: not if the record has the key or, with d, a run that serves this call. It uses
// the hold's session, whose server has seen the end of the holder before, and so its writes.
func (r *recording) begin(ctx context.Context, d time.Duration) (run JobRun, done bool, err error) {
	found, there, err := r.read(ctx)
	if err == nil && there {
		done = d == 0
	}
	if err == nil && there && d > 0 {
		var own zk.Stat
		if own, err = r.h.ctx.s.Exists(ctx, r.h.Node()); err == nil {
			done = time.UnixMilli(own.Ctime).Sub(found.Began) < d
		}
		if errors.Is(err, zk.ErrNoNode) {
			err = errors.Join(ErrNodeDeleted, r.h.Check(ctx))
		}
	}
	if err != nil || done {
		return found.JobRun, done, err
	}
	return JobRun{}, false, r.j.open(ctx, r.h.ctx.s, r.dir)
}

func (r *recording) read(ctx context.Context) (found recorded, there bool, err error) {
	found, there, err = r.j.read(ctx, r.h.ctx.s, r.key)
	if r.version = -1; there {
		r.version = found.version
	}
	return found, there, err
}

// write records the run, whose function has taken so long. A write whose reply is lost is made again: if the first one was
// carried out, the leader refuses the second, and the record has the run.
func (r *recording) write(ctx context.Context, took time.Duration) (JobRun, error) {
	run := runJSON{r.key, text.Short(r.j.o.owner, contender.MaxWho), text.Short(contender.Hostname(), contender.MaxWho), os.Getpid(), r.h.Token(), took.Milliseconds()}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // which would make a key six times as long
	if err := enc.Encode(run); err != nil {
		panic(err) // integers and strings always marshal
	}
	data := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	mine := func(stat zk.Stat) (JobRun, error) {
		made, err := parseRun(r.node, data, stat)
		made.Mine = true
		return made.JobRun, err
	}

	var before recipe.Doubt
	for {
		ops := []session.Op{session.OpSet{Path: r.node, Data: data, Version: r.version}}
		if r.version < 0 { // the answer to a create has no Stat: the data are set once more, for the time
			ops = []session.Op{session.OpCreate{Path: r.node, Data: data, ACL: r.j.o.acl}, session.OpSet{Path: r.node, Data: data}}
		}
		resps, err := r.h.Multi(ctx, ops...)
		before.Note(err)
		switch {
		case err == nil:
			return mine(*resps[len(resps)-1].Stat)
		case errors.Is(err, ErrUnknownOutcome) && ctx.Err() == nil && r.h.Err() == nil:
			continue // that can still be found out
		case !isAny(err, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNoNode):
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
		before = recipe.Doubt{} // what was unanswered was not carried out, and can't be any more
	}
}
