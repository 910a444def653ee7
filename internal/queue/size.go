package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// Size is the size of a semaphore: the one that the program expects, and the one that it has last
// found at the ensemble, which counts. All calls for that semaphore share it. It may be used
// concurrently.
type Size struct {
	want   int
	agreed atomic.Int64 // the ensemble's; 0 until it was found
}

// NewSize returns the size of a semaphore that is expected to have n permits.
func NewSize(n int) *Size { return &Size{want: n} }

// agree returns the semaphore's size at the ensemble, for a call that asks for q.Permits of them.
// If the ensemble has none, agree writes the expected size. For its errors see Enter.
func (z *Size) agree(ctx context.Context, s *session.Session, q *Queue, try bool) (int, error) {
	if err := q.checkPermits(); err != nil {
		return 0, err
	}
	size, err := z.ask(ctx, s, q, try)
	if failure.IsOne(err, session.ErrConfig, ErrDeadlock) {
		// The size is too small for the call, but the server may not know of a later, larger one.
		if err := s.Settle(ctx, q.Dir); err != nil {
			return 0, err
		}
		size, err = z.ask(ctx, s, q, try)
	}
	if err != nil {
		return 0, err
	}
	if z.agreed.Swap(int64(size)) == 0 && size != z.want && q.Log != nil {
		q.Log.Warn(
			"zklock: semaphore has another size at the ensemble, which counts: Resize changes it",
			"path", q.Dir, "ensemble", size, "program", z.want)
	}
	return size, nil
}

// ask returns the size at the connected server, or says why that size can't serve the call.
func (z *Size) ask(ctx context.Context, s *session.Session, q *Queue, try bool) (int, error) {
	d, _, err := q.ensureSize(ctx, s, z.want)
	if err != nil {
		return 0, err
	}
	return d.Size, checkSize(q, try, d.Size)
}

// checkPermits returns an error if no semaphore could serve q's call.
func (q *Queue) checkPermits() error {
	if q.Permits < 1 {
		return fmt.Errorf("%w: %d permits: less than one", session.ErrConfig, q.Permits)
	}
	return q.checkWrites("a semaphore's contenders need both, since they announce that they hold")
}

// checkWrites returns an error, with the reason why, if the access list lets a client create but
// not write.
func (q *Queue) checkWrites(why string) error {
	for _, a := range q.ACL {
		if a.Perms&(zk.PermCreate|zk.PermWrite) == zk.PermCreate {
			return fmt.Errorf("%w: the access list lets %s create, but not write: %s",
				session.ErrConfig, text.Foreign(a.Scheme+":"+a.ID), why)
		}
	}
	return nil
}

// checkSize returns an error if a semaphore of that size can't serve q's call.
func checkSize(q *Queue, try bool, size int) error {
	if q.Permits > size {
		return tooMany(q.Permits, size)
	}
	if !try && q.Held+q.Permits > size {
		return fmt.Errorf("%w: %d of %d permits, and asks for %d more",
			ErrDeadlock, q.Held, size, q.Permits)
	}
	return nil
}

func tooMany(n, size int) error {
	return fmt.Errorf("%w: %d permits: more than the semaphore has, which is %d",
		session.ErrConfig, n, size)
}

// ensureSize returns the data of the semaphore's directory, which have its size. If the directory
// is missing, or its data contain no size, ensureSize makes it or writes size, and reads again. It
// returns ErrConflict if a lock of another kind uses the directory, which then gets no size.
func (q *Queue) ensureSize(
	ctx context.Context, s *session.Session, size int,
) (dirData, zk.Stat, error) {
	var doubt session.Doubt // the size may have been written, and a later error has to say so
	for {
		d, stat, err := q.readData(ctx, s)
		missing := errors.Is(err, zk.ErrNoNode)
		if err != nil && !missing || d.Size > 0 {
			return d, stat, doubt.Add(err)
		}
		if q.Permits > size {
			return d, stat, tooMany(q.Permits, size) // before anything is made
		}
		if missing {
			err = q.makeDir(ctx, s, size)
		} else {
			err = q.writeFirstSize(ctx, s, dirData{size, d.Was}, stat.Version)
		}
		doubt.Note(cmp.Or(err, session.ErrUnknownOutcome))
		if err != nil && (missing || !writeAgain(ctx, s, err)) {
			return d, stat, doubt.Add(err)
		}
	}
}

// writeFirstSize writes d into a directory without a size, if its data are still of that version
// and no lock of another kind uses it.
func (q *Queue) writeFirstSize(
	ctx context.Context, s *session.Session, d dirData, version int32,
) error {
	names, _, err := s.List(ctx, q.Dir)
	if err != nil {
		return err
	}
	others := recipe.Foresee(names, q.Kind, q.Permits, 0).OtherKinds
	if err := q.conflict(ctx, s, others, math.MaxInt64); err != nil {
		return err
	}
	_, err = s.Set(ctx, q.Dir, d.encode(), version)
	return err
}

// Resized is the name of a persistent znode, no contender, that Resize makes in a container, so
// that the ensemble keeps the size.
const Resized = "resized"

// Resize writes a new size of q's semaphore. After an error it may have been written. The error
// matches ErrConflict if the directory has data that are not this library's. If the directory is a
// container (Container), the ensemble does not remove it any more.
func (z *Size) Resize(ctx context.Context, s *session.Session, q Queue, size int) error {
	pin := q.Container // the container has to get its child Resized
	q.Container = false
	var doubt session.Doubt
	for {
		d, stat, err := q.ensureSize(ctx, s, size)
		if err != nil {
			return doubt.Add(err)
		}
		err = q.writeSize(ctx, s, d.resized(size), stat.Version, pin)
		switch {
		case err == nil:
			z.agreed.Store(int64(size))
			return nil
		case pin && errors.Is(err, zk.ErrNodeExists):
			pin = false
			continue
		}
		doubt.Note(err)
		if !writeAgain(ctx, s, err) {
			return doubt.Add(err)
		}
	}
}

// resized returns the data for a new size.
func (d dirData) resized(size int) dirData {
	largest := max(d.Was, d.Size)
	if largest <= size {
		largest = 0 // Size says it
	}
	return dirData{Size: size, Was: largest}
}

// writeSize writes d into a directory whose data are of that version. If pin is set, the same
// transaction makes the child Resized.
func (q *Queue) writeSize(
	ctx context.Context, s *session.Session, d dirData, version int32, pin bool,
) error {
	if !pin {
		_, err := s.Set(ctx, q.Dir, d.encode(), version)
		return err
	}
	_, err := s.Multi(ctx,
		session.OpCreate{Path: q.Dir + "/" + Resized, ACL: q.ACL, Mode: session.Persistent},
		session.OpSet{Path: q.Dir, Data: d.encode(), Version: version})
	return err
}

// Free returns the size of q's semaphore at the ensemble, and how many permits no contender has
// or waits for. If the ensemble has no size yet, the expected one is returned. Free changes
// nothing. It returns ErrConflict if the directory has data that are not this library's.
func (z *Size) Free(ctx context.Context, s *session.Session, q Queue) (size, free int, err error) {
	if err := s.Settle(ctx, q.Dir); err != nil {
		return 0, 0, err
	}
	d, _, err := q.readData(ctx, s)
	var names []string
	if err == nil {
		names, _, err = s.List(ctx, q.Dir)
	}
	// A missing directory has no contenders, and gets the first one's size.
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return 0, 0, err
	}
	size = cmp.Or(d.Size, z.want)
	taken := recipe.Foresee(names, q.Kind, 1, size).Permits
	return size, max(size-taken, 0), nil
}
