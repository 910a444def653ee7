package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Once runs a job once in the whole fleet: once for each key (Do), or not again within some time (Every). A lock alone is
// not enough: a host that comes after the first has finished, because its clock is late or because it waited, finds the
// lock free and runs the job again. So Once keeps a record of the last runs, and reads it under the lock.
//
// # The record
//
// It is one persistent znode for each job, at the lock's path with ".done" behind it: inside the lock's directory it would
// be in the lists of other libraries' contenders, and keep the directory from being empty, as WithContainer and the renewal
// of its counter need it. Its data are JSON, of the last runs only (WithRemembered). It is written by Hold.Multi, so a host
// that has lost the lock writes nothing. Forget, or its deletion, lets the job run again.
//
// # At least once, or at most once
//
// The run is recorded when the function has returned nil: a run that fails, crashes, or loses the lock is made again by the
// next caller, and so may be made twice in part. A function that is not idempotent should write with the token, or with
// Hold.Multi. With WithAtMostOnce the run is recorded before the function is called: it is never made twice, even if it
// fails or crashes.
//
// Like a Mutex it is a description, and its methods may be called concurrently.
type Once struct {
	lock
	record string // the znode
}

const recordSuffix = ".done"

// Once returns the job whose lock is at path, the same lock as Mutex's. It does no I/O; a path or option that can't work is
// reported by every call (ErrPath, ErrOption). The options are those of a Mutex, and WithAtMostOnce and WithRemembered.
// WithACL is the record's access list, too; a client that runs the job needs READ and WRITE on it, and CREATE on the parent
// of path while there is no record. WithReentrancy is refused: two calls under one hold would both run
// the job.
func (c *Client) Once(path string, opts ...LockOption) *Once {
	return &Once{c.newLock(nounOnce, opts, path), path + recordSuffix}
}

// Do runs fn for key (a date, a migration's number, a message's id) unless that has been done before, by any host. It looks
// at the record, waits for the lock as Mutex.Lock does, looks again, and calls fn as Mutex.Do does. The key is 1 to 128
// bytes of printable UTF-8.
//
// Nil: fn has returned nil while the lock was held, and the run is recorded. ErrDone: the record has the key, and fn was
// not called; errors.As with *DoneError gives who did it, when, and with which token. ErrNotRecorded: fn has returned nil,
// but the run is not known to be recorded, so that the next caller may make it again; the error matches ErrLost when the
// lock was lost, and ErrUnknownOutcome when the run may have been recorded all the same, which Runs tells later.
//
// Other errors are Mutex.Do's: if one matches ErrNotRun, fn was not called; otherwise it was. An error of fn's own is
// returned unchanged, but does not match ErrDone and ErrNotRecorded of another Once inside fn; the run is then recorded
// only with WithAtMostOnce. With that, an error may also match both ErrNotRun and ErrUnknownOutcome: the run may have been
// recorded and is not made. ErrConflict: the record's znode has data that are not a record, or is the directory of a lock.
// ErrTooLarge: the record would be longer than WithPacketLimit allows, and fn was not called.
//
// It blocks as Mutex.Do does. While there is no connection, it blocks before fn until ctx or the hold has ended; after fn
// has returned nil, even if ctx has ended, until the run is recorded or the lease has ended, less than a session timeout.
// (With WithAtMostOnce nothing is recorded then.) It costs one read when the key is done; else a lock, two reads and two
// writes. WithWait bounds the first look and then the waiting.
func (o *Once) Do(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	use(ctx, o)
	needFunction(fn == nil)
	err := o.fail("once", cmp.Or(o.err, checkKey(key)))
	if err == nil {
		err = o.look(ctx, key)
	}
	if err != nil {
		return notRunError{err}
	}
	return o.do(ctx, key, 0, fn)
}

// Every runs fn unless the last recorded run began less than d ago; then it returns ErrDone. Otherwise it is like Do.
//
// Both times are the ensemble's: that of a write just before the last run called fn, and that of a write by this call
// once it holds the lock, however long it has waited. Clients' clocks do not count, but skew and adjustments of the
// servers' clocks shorten or lengthen d. So make d less than the period that you mean, by more than the skew of servers
// and clients: 20 h for a nightly job. A last run in the future, recorded while a leader's clock was ahead, counts as
// less than d ago: see DoneError.Ahead.
func (o *Once) Every(ctx context.Context, d time.Duration, fn func(ctx context.Context) error) error {
	use(ctx, o)
	needFunction(fn == nil)
	if d <= 0 && o.err == nil {
		return notRunError{o.fail("once", fmt.Errorf("%w: every %v: is not positive", ErrOption, d))}
	}
	return o.do(ctx, "", d, fn)
}

// Runs returns the recorded runs, the oldest first; none when there is no record. It is one read, of the connected server.
func (o *Once) Runs(ctx context.Context) (runs []Run, err error) {
	err = use(ctx, o).withSession(ctx, "once", func(s *session.Session) (err error) {
		runs, _, err = o.read(ctx, s)
		return err
	})
	return runs, err
}

// Forget removes the runs of key from the record, of Every with "", so that the next call runs the job again: all of
// them, or those with one of these tokens. It reports whether there were any. It does not wait for the lock: a run that
// is under way is still recorded. It costs a sync, a read and a write. ErrConflict: the record's znode has data that
// are not a record. After ErrUnknownOutcome they may be gone.
func (o *Once) Forget(ctx context.Context, key string, tokens ...Token) (found bool, err error) {
	err = use(ctx, o).withSession(ctx, "once", func(s *session.Session) error {
		for {
			if err := s.Sync(ctx, o.record); err != nil {
				return err
			}
			runs, stat, err := o.read(ctx, s)
			rest := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool {
				return r.Key == key && (len(tokens) == 0 || slices.Contains(tokens, r.Token))
			})
			if err != nil || len(rest) == len(runs) {
				return err
			}
			_, err = s.Set(ctx, o.record, encodeRuns(rest), stat.Version)
			if found = err == nil; found || !isAny(err, zk.ErrBadVersion, zk.ErrNoNode) {
				return err
			}
		}
	})
	return found, err
}

// do runs the job under the lock, unless the record has the key, or, with d, a run that began less than that ago.
func (o *Once) do(ctx context.Context, key string, d time.Duration, fn func(ctx context.Context) error) error {
	_, h, err := o.acquire(ctx, "lock", LockInfo{Kind: KindMutex})
	if err != nil {
		return notRunError{err}
	}
	var refused error // why fn was not called
	recorded := false // after fn: if the lock is lost from then on, the run has not failed
	err = h.do(ctx, func(work context.Context) error {
		r := recording{o: o, h: h}
		if refused = r.prepare(work, key, d); refused == nil && o.o.atMostOnce {
			refused = r.write(work)
		}
		if refused != nil {
			return nil
		}
		if err := fn(work); err != nil || o.o.atMostOnce {
			return hide(err, ErrDone, ErrNotRecorded, ErrNotRun) // of another Once
		}
		// Even if ctx has ended: a run that was made is recorded as long as the lock is held.
		if err := r.write(h.Context()); err != nil {
			return o.fail("once", fmt.Errorf("%w: %w", ErrNotRecorded, err))
		}
		recorded = true
		return nil
	})
	switch {
	case refused != nil:
		return notRunError{o.fail("once", refused)}
	case recorded:
		return nil
	}
	return err
}

// look returns a DoneError when the connected server's record has the key: then the call need not queue.
func (o *Once) look(ctx context.Context, key string) error {
	if o.o.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.o.wait)
		defer cancel()
	}
	runs, err := o.Runs(ctx)
	if err == nil {
		err = o.fail("once", done(runs, key))
	}
	return err
}

// recording is the record as the holder of the lock knows it, and the run that it adds.
type recording struct {
	o       *Once
	h       *Hold
	run     Run
	runs    []Run // what the record has
	version int32 // of the record
}

// prepare decides by the latest record whether the job is to run, and notes the run that is to be recorded.
func (r *recording) prepare(ctx context.Context, key string, d time.Duration) error {
	for {
		err := r.read(ctx)
		if err == nil && d == 0 {
			err = done(r.runs, key)
		}
		if err != nil {
			return err
		}
		// Written unchanged: the answer has the leader's time, and shows that what was read is the latest record.
		stat, err := r.multi(ctx, &zk.SetDataRequest{Path: r.o.record, Data: encodeRuns(r.runs), Version: r.version})
		if stat == nil {
			if err == nil || isAny(err, zk.ErrBadVersion, zk.ErrNoNode) || r.unknown(ctx, err) {
				continue // it has changed meanwhile, or may have
			}
			return err
		}
		began := time.UnixMilli(stat.Mtime)
		if err = doneSince(r.runs, began, d); d > 0 && err != nil {
			return err
		}
		r.run = Run{key, text.Short(r.o.o.owner, maxWho), text.Short(hostname(), maxWho), os.Getpid(), r.h.Token(), began}
		r.version = stat.Version
		return r.fits()
	}
}

// fits refuses, before the run, a record that would be too long to be written after it.
func (r *recording) fits() error {
	const around = 256 // bytes of a transaction with a check and a write, beside paths and data
	limit := cmp.Or(r.o.c.opts.session.PacketLimit, session.DefaultPacketLimit)
	_, chroot, _ := session.ParseConnect(r.o.c.connect) // which Open has accepted
	paths := len(r.o.record) + len(r.h.Node()) + 2*len(chroot)
	if size := len(encodeRuns(r.next())) + paths + around; size > limit {
		return fmt.Errorf("%w: a record of %d runs takes %d bytes, and %d is the limit (WithPacketLimit): have fewer remembered (WithRemembered)",
			ErrTooLarge, len(r.next()), size, limit)
	}
	return nil
}

// next returns the runs that the record is to have.
func (r *recording) next() []Run {
	return append(r.runs[max(0, len(r.runs)+1-cmp.Or(r.o.o.remember, remembered)):len(r.runs):len(r.runs)], r.run)
}

// multi carries out op if the lock is still held, and returns the Stat that a write of the record has left.
func (r *recording) multi(ctx context.Context, op any) (*zk.Stat, error) {
	resps, err := r.h.Multi(ctx, op)
	if err != nil {
		return nil, err
	}
	return resps[0].Stat, nil
}

// unknown reports whether err leaves the outcome of a write open, and that can still be found out.
func (r *recording) unknown(ctx context.Context, err error) bool {
	return errors.Is(err, ErrUnknownOutcome) && ctx.Err() == nil && r.h.Err() == nil
}

// write records the run. A write whose reply is lost is made again with the same version: if the first one was carried out,
// the leader refuses the second, and the record has the run.
func (r *recording) write(ctx context.Context) error {
	unanswered := false // whether an earlier write was
	var before recipe.Doubt
	for {
		_, err := r.multi(ctx, &zk.SetDataRequest{Path: r.o.record, Data: encodeRuns(r.next()), Version: r.version})
		before.Note(err)
		switch {
		case err == nil:
			return nil
		case r.unknown(ctx, err):
			unanswered = true
			continue
		case !isAny(err, zk.ErrBadVersion, zk.ErrNoNode):
			return before.Add(err)
		}
		// The record was written by our unanswered write, or written or deleted by a client that does not hold the lock.
		if err = r.h.ctx.s.Sync(ctx, r.o.record); err == nil {
			err = r.read(ctx)
		}
		if err != nil {
			return before.Add(err)
		}
		before = recipe.Doubt{} // the version has changed: an unanswered write can't be carried out any more
		if n := len(r.runs); unanswered && n > 0 && r.runs[n-1] == r.run {
			return nil
		}
	}
}

// read reads the record, and makes one if there is none. It uses the hold's session, whose server has seen the end of the
// previous holder, and so its writes.
func (r *recording) read(ctx context.Context) error {
	for {
		runs, stat, err := r.o.read(ctx, r.h.ctx.s)
		if err != nil {
			return err
		}
		if stat != nil {
			r.runs, r.version = runs, stat.Version
			return nil
		}
		_, err = r.multi(ctx, &zk.CreateRequest{Path: r.o.record, Data: encodeRuns(nil), Acl: r.o.o.acl})
		if err != nil && !errors.Is(err, zk.ErrNodeExists) && !r.unknown(ctx, err) {
			return err
		}
	}
}

// read returns what the record has, as the session's server knows it. A nil Stat: there is no record.
func (o *Once) read(ctx context.Context, s *session.Session) ([]Run, *zk.Stat, error) {
	data, stat, err := s.Get(ctx, o.record)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case len(data) == 0 && stat.Cversion != 0: // it has had children
		return nil, nil, fmt.Errorf("%w: %s, where the record of %s would be, is the directory of a lock", ErrConflict, o.record, o.path)
	}
	runs, err := parseRuns(o.record, data)
	return runs, &stat, err
}
