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

// prepare decides whether the function is to be called. done is true if the record has a run that
// serves this call. Otherwise prepare makes sure that a run can be recorded. d is Every's period,
// or 0 for Once.
//
// It uses the hold's session. The server of that has seen the end of the previous holder, and so
// its writes.
func (r *recording) prepare(
	ctx context.Context, d time.Duration,
) (run JobRun, done bool, err error) {
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

// write records the run that began then.
func (r *recording) write(ctx context.Context, began time.Time, underWay bool) (JobRun, error) {
	return inTime(func() (JobRun, error) { return r.put(ctx, began, underWay) })
}

// end records that a run of AtMostOnce has ended. ok is false if it can't: the run was forgotten
// meanwhile, for example. Then the record stays as it is, and a call that asks for the run waits
// for the lock, to see what became of it.
func (r *recording) end(ctx context.Context, began time.Time) (run JobRun, ok bool) {
	run, err := inTime(func() (JobRun, error) { return r.setEnded(ctx, began) })
	return run, err == nil
}

// setEnded replaces the run that is under way by the ended one. It repeats the write while replies
// are lost.
func (r *recording) setEnded(ctx context.Context, began time.Time) (JobRun, error) {
	for {
		data := r.data(began, false)
		resps, err := r.h.Multi(ctx, session.OpSet{Path: r.node, Data: data, Version: r.version})
		switch {
		case err == nil:
			return r.mine(data, *resps[0].Stat)
		case !errors.Is(err, session.ErrNoReply) || r.h.Err() != nil:
			return JobRun{}, err
		}
	}
}

// inTime calls write, which records a run. A run began at its znode's Mtime less runJSON.Took, so
// the write must not take long. If it was slow, because there was no connection for example, inTime
// repeats it.
func inTime(write func() (JobRun, error)) (JobRun, error) {
	sent := time.Now()
	run, err := write()
	if err != nil || time.Since(sent) <= slow {
		return run, err
	}
	repeated, err := write()
	if err != nil {
		return run, nil //nolint:nilerr // the first write has recorded the run
	}
	return repeated, nil
}

// slow is the longest time that a write may take.
const slow = time.Second

// put writes the run. A write whose reply is lost is made again: if the first one was carried out,
// the leader refuses the second, and the record has the run.
func (r *recording) put(ctx context.Context, began time.Time, underWay bool) (JobRun, error) {
	data := r.data(began, underWay)
	var doubt session.Doubt // whether one of our writes so far may have been carried out
	for {
		resps, err := r.h.Multi(ctx, r.ops(data)...)
		doubt.Note(err)
		switch {
		case err == nil:
			return r.mine(data, *resps[len(resps)-1].Stat)
		case errors.Is(err, session.ErrNoReply) && ctx.Err() == nil && r.h.Err() == nil:
			continue // what became of it can still be found out
		case !failure.IsOne(err, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNoNode):
			return JobRun{}, doubt.Add(err)
		}
		// Our unanswered write has written the run, or a client that does not hold the lock has
		// changed the record.
		found, there, err := r.readAgain(ctx)
		if err != nil {
			return JobRun{}, doubt.Add(err)
		}
		if there && bytes.Equal(found.data, data) {
			found.Mine = true
			return found.JobRun, nil
		}
		doubt = session.Doubt{} // what was unanswered was not carried out, and can't be any more
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
