package zklock

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Status is what a Client had at one moment: its sessions, and this process's own holds and waits in them. Others' are
// not in it: see Client.Queue.
type Status struct {
	Session  SessionStatus   // the one that Client.Session returns
	Sessions []SessionStatus // that one, and the further ones in the order in which they were opened: WithEphemeralBytes
	Holds    []HeldLock      // in the order in which they were asked for
	Waits    []WaitedLock    // likewise
	Kept     []KeptLock      // by path
}

// SessionStatus is a ZooKeeper session as this process knows it.
type SessionStatus struct {
	ID      int64 // 0: the ensemble has not answered yet
	State   session.State
	Server  string        // that it is connected to; "" when it is not
	Timeout time.Duration // that the ensemble granted; before it has, the one that is asked for
	// SafeUntil is the instant before which the ensemble can't have ended the session by itself: local clock. While
	// nothing is held nobody confirms it, and it may be past.
	SafeUntil time.Time
	// EphemeralBytes is what the paths of its ephemeral znodes take: see WithEphemeralBytes.
	EphemeralBytes int
	Err            error // why the session is Over: then the next one is being opened, unless it matches ErrClosed
}

// HeldLock is a lock that is held.
type HeldLock struct {
	LockInfo            // of the call that got it; Kind is "read" after a Downgrade; Context is nil
	Node      string    // its znode; of a MultiLock's, the first path's
	Token     Token     //
	Since     time.Time // when it was acquired
	SafeUntil time.Time // as Hold.SafeUntil
	Count     int       // holds of it that have not been released: more than one with WithReentrancy
}

// WaitedLock is a call that has not returned yet.
type WaitedLock struct {
	LockInfo           // Context is nil
	Since    time.Time // when it was asked for
	// Ahead is how many contenders stand in its way, as last seen: 0 before it has taken its place in line, and between
	// the last of them going and the lock being held. Holder and Who tell of the first of them, as in QueuedInfo.
	Ahead       int
	Holder, Who string
}

// KeptLock is a place that this process keeps though nobody in it holds the lock: WithIdleKeep. To others it is held.
type KeptLock struct {
	Path      string
	Node      string
	Token     Token     // of the next hold on it
	Since     time.Time // of the last Unlock
	SafeUntil time.Time // as Hold.SafeUntil
}

// Status returns what the Client has, without asking the ensemble: it never blocks, also when nothing can be reached,
// and also after Close. Holds and waits are those of one moment; one whose Lock returned before Status was called is
// in it, one whose Unlock was called, or that is known to be lost, is not. It costs a copy of them all, and Lock a map
// entry; nothing is kept of calls that are over. Hooks may call it.
func (c *Client) Status() Status {
	c.need()
	var st Status
	for _, s := range c.sessions.all() {
		st.Sessions = append(st.Sessions, sessionStatus(s))
	}
	st.Session = st.Sessions[0]
	waits, grips := c.use.all()
	for _, w := range waits {
		w.info.Context = nil
		st.Waits = append(st.Waits, WaitedLock{w.info, w.since, w.line.Ahead, w.line.Holder, w.line.Who})
	}
	for _, g := range grips {
		if h, ok := g.status(); ok {
			st.Holds = append(st.Holds, h)
		}
	}
	st.Kept = c.lines.kept()
	slices.SortFunc(st.Waits, func(a, b WaitedLock) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortFunc(st.Holds, func(a, b HeldLock) int { return cmp.Compare(a.Call, b.Call) })
	return st
}

// SessionStatus is Status.Session, the part of Status that costs the same however much is held: for a readiness probe.
func (c *Client) SessionStatus() SessionStatus {
	c.need()
	return sessionStatus(c.sessions.current())
}

func sessionStatus(s *session.Session) SessionStatus {
	return SessionStatus{ID: s.ID(), State: s.State(), Server: s.Server(), Timeout: s.Timeout(), SafeUntil: s.SafeUntil(),
		EphemeralBytes: s.EphemeralBytes(), Err: s.Err()}
}

// status returns what is held; false: it has ended.
func (g *grip) status() (HeldLock, bool) {
	info := g.told()
	info.Context = nil
	g.mu.Lock()
	p, n := g.p, g.holds+g.reads
	over := g.over || n == 0 || g.ctx.Err() != nil
	g.mu.Unlock()
	if over {
		return HeldLock{}, false
	}
	return HeldLock{info, p.Nodes()[0], Token(p.Czxid()), g.from, p.Session().SafeUntil(), n}, true
}

// kept returns the places that nobody has, by path.
func (ls *lines) kept() (kept []KeptLock) {
	ls.mu.Lock()
	all := slices.Collect(maps.Values(ls.all))
	ls.mu.Unlock()
	for _, l := range all {
		l.mu.Lock()
		if t := l.t; t != nil && !t.held && !t.over && !t.idle.IsZero() {
			kept = append(kept, KeptLock{l.b.path, t.Nodes()[0], Token(t.Czxid()), t.idle, t.s.SafeUntil()})
		}
		l.mu.Unlock()
	}
	slices.SortFunc(kept, func(a, b KeptLock) int { return cmp.Compare(a.Node, b.Node) })
	return kept
}

// waiting is a call that wants a lock.
type waiting struct {
	info  LockInfo
	since time.Time

	line recipe.Line // guarded by inUse.mu
}

// inUse has the calls that wait and the locks that are held. A call is in it from the moment at which it asks, and what
// it got until that has ended: it grows with what is going on and not with what has been.
type inUse struct {
	mu    sync.Mutex // guards what follows; held for a map entry, or a copy of all
	waits map[*waiting]struct{}
	grips map[*grip]struct{}
}

// asked enters a call that wants a lock.
func (u *inUse) asked(info LockInfo, since time.Time) *waiting {
	w := &waiting{info: info, since: since}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waits == nil {
		u.waits, u.grips = map[*waiting]struct{}{}, map[*grip]struct{}{}
	}
	u.waits[w] = struct{}{}
	return w
}

// queued notes a call's place in line.
func (u *inUse) queued(w *waiting, line recipe.Line) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.line = line
}

// acquired has g take the place of the call that got it.
func (u *inUse) acquired(w *waiting, g *grip) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.waits, w)
	u.grips[g] = struct{}{}
}

// left removes a call that has ended, with a lock or without.
func (u *inUse) left(w *waiting) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.waits, w)
}

// ended removes a grip that is over.
func (u *inUse) ended(g *grip) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.grips, g)
}

// all returns copies of the waits, and the grips.
func (u *inUse) all() ([]waiting, []*grip) {
	u.mu.Lock()
	defer u.mu.Unlock()
	waits, grips := make([]waiting, 0, len(u.waits)), make([]*grip, 0, len(u.grips))
	for w := range u.waits {
		waits = append(waits, *w)
	}
	for g := range u.grips {
		grips = append(grips, g)
	}
	return waits, grips
}
