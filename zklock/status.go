package zklock

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

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
	ID     int64 // 0: the ensemble has not answered yet
	State  session.State
	Server string // that it is connected to
	// that the ensemble granted; before it has, the one that is asked for
	Timeout time.Duration
	// that leases allow for: found out, or WithTickTime's; 0 before a server has answered
	TickTime time.Duration
	// until then the ensemble can't have ended the session by itself; past while nothing is held
	SafeUntil      time.Time
	EphemeralBytes int   // that the paths of its ephemeral znodes take: see ErrSessionFull
	Err            error // why the session is Over
}

// Status returns what the Client has at one moment, without asking the ensemble: it never blocks,
// and may be called after Close, and by hooks. A hold is in it until its Unlock is called, or it is
// known to be lost.
func (c *Client) Status() Status {
	st := Status{Session: c.SessionStatus()}
	var acquisitions []*acquisition
	c.use.update(func() {
		for w := range c.use.waits {
			i := w.queued()
			i.Context, i.Since, i.Paths = nil, w.since, slices.Clone(i.Paths)
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
	return SessionStatus{ID: s.ID(), State: s.State(), Server: s.Server(), Timeout: s.Timeout(),
		TickTime: s.TickTime(), SafeUntil: s.SafeUntil(),
		EphemeralBytes: s.EphemeralBytes(), Err: s.Err()}
}

// inUse has the calls that wait, from when they ask, and the locks that are held, until they have
// ended.
type inUse struct {
	// guards what follows, and fields of waiting; held for a map entry, or a copy of all
	mu    sync.Mutex
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
	return slices.ContainsFunc(ofPaths, func(a *acquisition) bool {
		return slices.Contains(a.ticket.Nodes(), node)
	})
}
