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
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// How a semaphore's contenders wait: who holds, and why that is safe, see recipe/semaphore.go.
//
// Waking. A waiter watches the contender immediately before it. It wakes when that contender's znode is deleted, or when
// that contender, after a wait of its own, begins to hold, which it announces by setting its own znode's data. The first of
// the waiters, the head, knows that all before it hold. It watches the list of children, to wake when any of them releases,
// and the directory's data, which have the size. A release hence wakes the head, and the contender behind the deleted znode
// if that one waits: two at most, however many wait.
//
// A contender that holds by its first list need not announce it, and does not if those behind it know. They do when
//
//   - that list shows none of them. Each then came later, and its lists are later too: since contenders before us only
//     disappear, they show no more permits before the silent one than its own list did. (One that is listed already may
//     have decided by an earlier list, with more permits in it, and sleeps.) And
//   - the size that it holds by was written before its znode was made. Each behind it then decides by that size, or by one
//     written since, because it reads the size after its own create. By that size, or a larger one, it finds that the
//     silent one holds; for a smaller one see below.
//
// The first contender writes the size into the directory's data. When the size is lowered, the holders may have more
// permits than there are, and neither a list nor their data tell them from waiters: a silent one has not set its data. So
// the same write keeps the largest size that there ever was, and a waiter is a head, too, if the contender before it may
// hold by a larger size:
//
//   - the permits before us are no more than the largest size, and
//   - the contender before us was created before the directory's data were last written.
//
// Taking a waiter for a holder is harmless: it makes another head, which is woken more often than needed. So a Resize is
// one write: all heads watch the data, and it does not matter whether its caller learns of the success.

// readSize reads the size. If the directory has none, it was made again since Enter: the first look writes the one that Enter has
// found. Later looks keep the one that they know, also when the data are foreign, which is an error of the first. Another error is
// that of Enter if the size can't serve the call any more: it would wait for a Resize, and all behind it too.
func (w *waiter) readSize(ctx context.Context) error {
	first := !w.e.queued
	d, stat, err := w.e.q.readData(ctx, w.t.s)
	if err == nil && d.Size == 0 && first {
		d, _, err = w.e.q.ensureSize(ctx, w.t.s, w.e.size)
		stat.Mzxid = math.MaxInt64
	}
	switch {
	case errors.Is(err, ErrConflict) && !first, err == nil && d.Size == 0:
		return nil
	case err != nil:
		return asGone(err)
	}
	w.e.size, w.largest, w.dataZxid = d.Size, max(d.Size, d.Was), stat.Mzxid
	return refuse(w.e.q, w.t.try, d.Size)
}

// knownToHold reports whether those behind us know that we hold, if v, our first verdict, says so.
func (w *waiter) knownToHold(v recipe.Verdict) bool { return w.dataZxid < w.t.czxid && !v.Followed }

// isHead reports whether all before us hold, or may hold by an earlier, larger size.
func (w *waiter) isHead(ctx context.Context, v recipe.Verdict) (bool, error) {
	if v.Ahead == 1 || v.Permits > w.largest {
		return v.Ahead == 1, nil
	}
	stat, err := w.t.s.Exists(ctx, w.e.q.Dir+"/"+v.Watch)
	if session.IsOne(err, zk.ErrNoNode, zk.ErrNoAuth) {
		return false, nil
	}
	return stat.Czxid < w.dataZxid, err
}

// watchDir watches, as the head, the directory, unless it does already.
func (w *waiter) watchDir(ctx context.Context) (anew bool, err error) {
	if w.follow(""); len(w.watches) > 0 && !w.hasFired() {
		return false, nil
	}
	w.unwatch()
	data, err := w.t.s.Watch(ctx, w.e.q.Dir)
	if err != nil {
		return false, err
	}
	children, names, stat, err := w.t.s.WatchChildren(ctx, w.e.q.Dir)
	if err != nil {
		data.Close()
		return false, asGone(err)
	}
	w.watches = []*session.Watch{children, data}
	w.e.listed(session.Children{Names: names, Stat: stat})
	return true, nil
}

// announce wakes the contender behind us, now that we hold: it may be its turn too.
func (w *waiter) announce() {
	t, node, data := w.t, w.e.node, w.e.q.Data
	t.s.Go(func(ctx context.Context) {
		persist(ctx, func() error { // if our znode is gone, that has woken the next contender
			_, err := t.s.Set(ctx, node, data, -1)
			return err
		})
	})
}

// Size is the size of a semaphore as one program knows it: the expected one until the ensemble's has been found, and that
// from then on. All calls for that semaphore share it; it may be used concurrently.
type Size struct {
	want   int
	agreed atomic.Int64 // the ensemble's; 0 until it was found
}

// NewSize returns the size of a semaphore that is expected to have n permits.
func NewSize(n int) *Size { return &Size{want: n} }

// agree returns the semaphore's size at the ensemble, for a call that asks for q.Permits of them. The first contender
// writes the size that it expects. Errors: see Enter.
func (z *Size) agree(ctx context.Context, s *session.Session, q *Queue, try bool) (int, error) {
	if q.Permits < 1 {
		return 0, fmt.Errorf("%w: %d permits: less than one", session.ErrConfig, q.Permits)
	}
	for _, a := range q.ACL {
		if a.Perms&(zk.PermCreate|zk.PermWrite) == zk.PermCreate {
			return 0, fmt.Errorf("%w: the access list lets %s create, but not write: a semaphore's contenders need both, since they announce that they hold",
				session.ErrConfig, text.Foreign(a.Scheme+":"+a.ID))
		}
	}
	for settled := false; ; settled = true {
		d, _, err := q.ensureSize(ctx, s, z.want)
		if err == nil {
			err = refuse(q, try, d.Size)
		}
		switch {
		case err == nil:
			if z.agreed.Swap(int64(d.Size)) == 0 && d.Size != z.want && q.Log != nil {
				q.Log.Warn("semaphore has another size at the ensemble, which counts: Resize changes it",
					"path", q.Dir, "ensemble", d.Size, "program", z.want)
			}
			return d.Size, nil
		case settled || !session.IsOne(err, session.ErrConfig, ErrDeadlock):
			return 0, err
		}
		if err := s.Settle(ctx, q.Dir); err != nil { // the server may not know of the size yet
			return 0, err
		}
	}
}

// refuse says why a semaphore of that size can't serve a call.
func refuse(q *Queue, try bool, size int) error {
	switch {
	case q.Permits > size:
		return tooMany(q.Permits, size)
	case !try && q.Held+q.Permits > size:
		return fmt.Errorf("%w: %d of %d permits, and asks for %d more", ErrDeadlock, q.Held, size, q.Permits)
	}
	return nil
}

func tooMany(n, size int) error {
	return fmt.Errorf("%w: %d permits: more than the semaphore has, which is %d", session.ErrConfig, n, size)
}

// ensureSize returns the data of the semaphore's directory, with its size. It makes a missing directory, and writes size
// into one that has none. ErrConflict: a lock of another kind uses the directory, which gets no size.
func (q *Queue) ensureSize(ctx context.Context, s *session.Session, size int) (dirData, zk.Stat, error) {
	var before session.Doubt
	for {
		d, stat, err := q.readData(ctx, s)
		none := errors.Is(err, zk.ErrNoNode)
		if q.Permits > size && (none || err == nil && d.Size == 0) {
			return d, stat, tooMany(q.Permits, size) // before anything is made
		}
		if none {
			if err = q.makeDir(ctx, s, size); err == nil {
				before.Note(session.ErrUnknownOutcome) // of what this call is for: it may be made, and a later error does not say so
				continue
			}
		}
		if err != nil || d.Size > 0 {
			return d, stat, before.Add(err)
		}
		names, _, err := s.List(ctx, q.Dir)
		if err == nil {
			err = q.conflict(ctx, s, recipe.Foresee(names, q.Kind, q.Permits, d.Size).OtherKinds, math.MaxInt64)
		}
		if err == nil {
			d.Size = size
			_, err = s.Set(ctx, q.Dir, d.encode(), stat.Version)
		}
		if before.Note(cmp.Or(err, session.ErrUnknownOutcome)); err != nil && !writeAgain(ctx, s, err) {
			return d, stat, before.Add(err)
		}
	}
}

// Resized is a persistent znode, no contender, that Resize makes in a container, so that the ensemble keeps the size.
const Resized = "resized"

// Resize writes a new size of q's semaphore. After an error it may have been written. ErrConflict: the directory has data
// that are not this library's. If it is a container (Container), the ensemble does not remove it any more.
func (z *Size) Resize(ctx context.Context, s *session.Session, q Queue, size int) error {
	pin := q.Container
	q.Container = false
	var before session.Doubt
	for {
		d, stat, err := q.ensureSize(ctx, s, size)
		if err != nil {
			return before.Add(err)
		}
		if d.Was = max(d.Was, d.Size); d.Was <= size {
			d.Was = 0
		}
		d.Size = size
		if pin {
			_, err = s.Multi(ctx, session.OpCreate{Path: q.Dir + "/" + Resized, ACL: q.ACL, Mode: session.Persistent},
				session.OpSet{Path: q.Dir, Data: d.encode(), Version: stat.Version})
		} else {
			_, err = s.Set(ctx, q.Dir, d.encode(), stat.Version)
		}
		if err == nil {
			break
		}
		if pin && errors.Is(err, zk.ErrNodeExists) {
			pin = false // it is there already
		} else if before.Note(err); !writeAgain(ctx, s, err) {
			return before.Add(err)
		}
	}
	z.agreed.Store(int64(size))
	return nil
}

// Free returns the size of q's semaphore at the ensemble, the expected one where it has none yet, and how many permits no
// contender has or waits for. It changes nothing. ErrConflict: the directory has data that are not this library's.
func (z *Size) Free(ctx context.Context, s *session.Session, q Queue) (size, free int, err error) {
	if err := s.Settle(ctx, q.Dir); err != nil {
		return 0, 0, err
	}
	d, _, err := q.readData(ctx, s)
	var names []string
	if err == nil {
		names, _, err = s.List(ctx, q.Dir)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) { // a missing directory has no contenders, and the first one's size
		return 0, 0, err
	}
	size = cmp.Or(d.Size, z.want)
	return size, max(size-recipe.Foresee(names, q.Kind, 1, size).Permits, 0), nil
}
