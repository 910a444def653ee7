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

// refuses reports whether the record, made with acl, certainly could not be written after the
// function has been called.
func (r *recording) refuses(acl []zk.ACL) bool {
	known := !slices.ContainsFunc(acl, func(a zk.ACL) bool { return !slices.Contains([]string{"world", "auth", "digest"}, a.Scheme) })
	return known && !r.h.ctx.s.Grants(acl, zk.PermRead|zk.PermWrite|zk.PermCreate)
}

// write records the run that began then. A write that was slow, for want of a connection say, is
// made again for its time.
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

// end records that a run of AtMostOnce has ended. If it can't, say because the run was forgotten
// meanwhile, the record stays as it is: a call that asks for the run waits for the lock to see what
// became of it.
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
		// The run was written by our unanswered write, or the record changed by a client that does
		// not hold the lock.
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

func (r *recording) read(ctx context.Context) (found recorded, there bool, err error) {
	found, there, err = r.j.read(ctx, r.h.ctx.s, r.key)
	if r.version = -1; there {
		r.version = found.version
	}
	return found, there, err
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
