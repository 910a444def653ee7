package zklock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/text"
)

// recording is the record as the holder of the lock knows it, and the run that it adds.
type recording struct {
	j         *Job
	h         *Hold
	dir, node string
	key       string
	version   int32 // of the znode; -1: there is none
}

func (j *Job) recording(h *Hold, key string) *recording {
	dir, node := j.znode(key)
	return &recording{j: j, h: h, dir: dir, node: node, key: key, version: -1}
}

// begin decides whether fn is to be called: not if the record has the key or, with d, a run that
// serves this call. It uses the hold's session, whose server has seen the end of the holder before,
// and so its writes.
func (r *recording) begin(ctx context.Context, d time.Duration) (run JobRun, done bool, err error) {
	found, there, err := r.read(ctx)
	if err != nil {
		return JobRun{}, false, err
	}
	if there {
		done, err = r.serves(ctx, found, d)
		if err != nil || done {
			return found.JobRun, done, err
		}
	} else if r.refuses(r.j.o.acl) {
		return JobRun{}, false,
			fmt.Errorf("%w: WithACL does not grant this client READ, WRITE and CREATE, "+
				"which a job's record needs", zk.ErrNoAuth)
	}
	return JobRun{}, false, r.j.open(ctx, r.h.ctx.s, r.dir)
}

// serves reports whether found is the run that this call asks for: any of the key or, with d, one
// that began less than d before the call entered the line, by the ensemble's clock.
func (r *recording) serves(ctx context.Context, found recorded, d time.Duration) (bool, error) {
	if d == 0 {
		return true, nil
	}
	own, err := r.h.ctx.s.Exists(ctx, r.h.Node())
	if errors.Is(err, zk.ErrNoNode) {
		return false, errors.Join(ErrNodeDeleted, r.h.Check(ctx))
	}
	if err != nil {
		return false, err
	}
	return time.UnixMilli(own.Ctime).Sub(found.Began) < d, nil
}

// refuses reports whether the record, made with acl, certainly could not be written after the
// function has been called.
func (r *recording) refuses(acl []zk.ACL) bool {
	known := []string{"world", "auth", "digest"}
	for _, a := range acl {
		if !slices.Contains(known, a.Scheme) {
			return false
		}
	}
	return !r.h.ctx.s.Grants(acl, zk.PermRead|zk.PermWrite|zk.PermCreate)
}

// write records the run that began then. A write that was slow, since there was no connection for
// example, is repeated for its time.
func (r *recording) write(ctx context.Context, began time.Time, underWay bool) (JobRun, error) {
	sent := time.Now()
	run, err := r.put(ctx, began, underWay)
	if err != nil || time.Since(sent) <= slow {
		return run, err
	}
	repeated, err := r.put(ctx, began, underWay)
	if err != nil {
		return run, nil //nolint:nilerr // the first write has recorded the run
	}
	return repeated, nil
}

// end records that a run of AtMostOnce has ended. ok is false if it can't: the run was forgotten
// meanwhile, for example. Then the record stays as it is, and a call that asks for the run waits
// for the lock, to see what became of it.
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

// slow is the longest that a write may take. After a longer one, its Mtime less runJSON.Took is not
// when the run began.
const slow = time.Second

// put writes the run. A write whose reply is lost is made again: if the first one was carried out,
// the leader refuses the second, and the record has the run.
func (r *recording) put(ctx context.Context, began time.Time, underWay bool) (JobRun, error) {
	data := r.data(began, underWay)
	var earlier session.Doubt // of our writes before the latest
	for {
		resps, err := r.h.Multi(ctx, r.ops(data)...)
		earlier.Note(err)
		switch {
		case err == nil:
			return r.mine(data, *resps[len(resps)-1].Stat)
		case errors.Is(err, session.ErrNoReply) && ctx.Err() == nil && r.h.Err() == nil:
			continue // what became of it can still be found out
		case !failure.IsOne(err, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNoNode):
			return JobRun{}, earlier.Add(err)
		}
		// Our unanswered write has written the run, or a client that does not hold the lock has
		// changed the record.
		found, there, err := r.readAgain(ctx)
		if err != nil {
			return JobRun{}, earlier.Add(err)
		}
		if there && bytes.Equal(found.data, data) {
			found.Mine = true
			return found.JobRun, nil
		}
		earlier = session.Doubt{} // what was unanswered was not carried out, and can't be any more
	}
}

// ops returns the operations that write the run. The answer to a create has no Stat, so the data
// are set once more, for the time.
func (r *recording) ops(data []byte) []session.Op {
	if r.version >= 0 {
		return []session.Op{session.OpSet{Path: r.node, Data: data, Version: r.version}}
	}
	return []session.Op{
		session.OpCreate{Path: r.node, Data: data, ACL: r.j.o.acl},
		session.OpSet{Path: r.node, Data: data},
	}
}

// readAgain is read after the record has changed, or may be missing.
func (r *recording) readAgain(ctx context.Context) (found recorded, there bool, err error) {
	s := r.h.ctx.s
	if err := s.Sync(ctx, r.node); err != nil {
		return recorded{}, false, err
	}
	if err := r.j.open(ctx, s, r.dir); err != nil {
		return recorded{}, false, err
	}
	return r.read(ctx)
}

// read returns the recorded run, and notes its version.
func (r *recording) read(ctx context.Context) (found recorded, there bool, err error) {
	found, there, err = r.j.read(ctx, r.h.ctx.s, r.key)
	r.version = -1
	if there {
		r.version = found.version
	}
	return found, there, err
}

func (r *recording) data(began time.Time, underWay bool) []byte {
	return runJSON{
		Key:      r.key,
		Owner:    text.Short(r.j.o.owner, contender.MaxWho),
		Host:     text.Short(contender.Hostname(), contender.MaxWho),
		PID:      os.Getpid(),
		Token:    r.h.Token(),
		Took:     time.Since(began).Milliseconds(),
		UnderWay: underWay,
	}.encode()
}

// mine returns the run that our write has left.
func (r *recording) mine(data []byte, stat zk.Stat) (JobRun, error) {
	made, err := parseRun(r.node, data, stat)
	made.Mine, r.version = true, stat.Version
	return made.JobRun, err
}
