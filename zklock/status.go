package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/session"
)

// Status is what a Client had at one moment. Package admin has what other clients hold.
type Status struct {
	Session SessionStatus
	Holds   []LockInfo // in the order of the calls
	Waits   []LockInfo // calls that have not returned yet
}

// SessionStatus is a ZooKeeper session as this process knows it.
type SessionStatus struct {
	ID             int64 // 0: the ensemble has not answered yet
	State          session.State
	Server         string        // that it is connected to
	Timeout        time.Duration // that the ensemble granted; before it has, the one that is asked for
	TickTime       time.Duration // that leases allow for: found out, or WithTickTime's; 0 before a server has answered
	SafeUntil      time.Time     // until then the ensemble can't have ended the session by itself; past while nothing is held
	EphemeralBytes int           // that the paths of its ephemeral znodes take: see ErrNoRoom
	Err            error         // why the session is Over
}

// Status returns what the Client has at one moment, without asking the ensemble: it never blocks, and may be called after Close,
// and by hooks. A hold is in it until its Unlock is called, or it is known to be lost.
func (c *Client) Status() Status {
	st := Status{Session: c.SessionStatus()}
	var acquisitions []*acquisition
	c.use.update(func() {
		for w := range c.use.waits {
			i := w.queued()
			i.Context, i.Since = nil, w.since
			st.Waits = append(st.Waits, i)
		}
		acquisitions = slices.Collect(maps.Keys(c.use.holds))
	})
	for _, a := range acquisitions {
		if h, ok := a.status(); ok {
			st.Holds = append(st.Holds, h)
		}
	}
	byCall := func(a, b LockInfo) int { return cmp.Compare(a.Call, b.Call) }
	slices.SortFunc(st.Waits, byCall)
	slices.SortFunc(st.Holds, byCall)
	return st
}

// SessionStatus is Status.Session. It costs the same however much is held: for a readiness probe.
func (c *Client) SessionStatus() SessionStatus {
	s := c.present.Load().session
	return SessionStatus{ID: s.ID(), State: s.State(), Server: s.Server(), Timeout: s.Timeout(), TickTime: s.TickTime(), SafeUntil: s.SafeUntil(),
		EphemeralBytes: s.EphemeralBytes(), Err: s.Err()}
}

type waiting struct {
	c     *Client
	info  LockInfo
	since time.Time

	caller context.Context    // of the call
	cancel context.CancelFunc // ends the wait

	// Guarded by inUse.mu; only the call's goroutine writes them.
	line     queue.Line
	panicked any   // what a hook panicked with
	retries  int   // how often a step was made again
	why      error // the last time
}

// queued returns the call with its place in line.
func (w *waiting) queued() LockInfo {
	i := w.info
	i.Ahead, i.Holder, i.Who = w.line.Ahead, w.line.Holder, w.line.Who
	return i
}

// endOnPanic is deferred by what calls a hook while the call waits. A panic must not unwind the stack of a call that has a
// place in line: it ends the wait, and acquire goes on with it.
func (w *waiting) endOnPanic() {
	if p := recover(); p != nil {
		w.c.use.update(func() { w.panicked = p })
		w.cancel()
	}
}

// Queued notes the call's place in line, and reports it.
func (w *waiting) Queued(l queue.Line) {
	w.c.use.update(func() { w.line = l })
	defer w.endOnPanic()
	w.c.tell(slog.LevelDebug, "lock queued", w.c.opts.hooks.Queued, w.queued())
}

func (w *waiting) Retried(cause error) {
	w.c.use.update(func() { w.line, w.retries, w.why = queue.Line{}, w.retries+1, cause })
	defer w.endOnPanic()
	i := w.info
	i.Err = cause
	w.c.tell(slog.LevelDebug, "lock step retried", w.c.opts.hooks.Retried, i)
}

// explain adds to the error of a call whose ctx has ended, and that is not in line, why it had to begin again: the ensemble may
// end session after session.
func (w *waiting) explain(ctx context.Context, err error) error {
	if ctx.Err() == nil || w.retries == 0 || errors.As(err, new(queue.LineError)) {
		return err
	}
	return fmt.Errorf("%w (%d attempts before that failed, the last one with: %v)", err, w.retries, w.why) //nolint:errorlint // as text
}

// inUse has the calls that wait, from when they ask, and the locks that are held, until they have ended.
type inUse struct {
	mu    sync.Mutex // guards what follows, and waiting.line; held for a map entry, or a copy of all
	waits map[*waiting]struct{}
	holds map[*acquisition]struct{}
}

func (u *inUse) update(fn func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fn()
}

// holding reports whether the Client holds a lock of one of paths by the znode node.
func (u *inUse) holding(paths []string, node string) bool {
	u.mu.Lock()
	var ofPaths []*acquisition
	for a := range u.holds {
		if slices.ContainsFunc(paths, func(p string) bool { return a.covers(lockKey{a.c, p}) }) {
			ofPaths = append(ofPaths, a)
		}
	}
	u.mu.Unlock()
	return slices.ContainsFunc(ofPaths, func(a *acquisition) bool { return slices.Contains(a.ticket.Nodes(), node) })
}
