package zklock

import (
	"context"
	"fmt"
	"strings"

	"github.com/zklock/locker/recipe"
)

// MultiLock is several mutexes that are held together: all or none. All places are taken in one transaction, so that
// contenders are in the same order in every line, and there is no deadlock in whatever order the paths are named. It
// takes one write to enter and one to release, however many paths there are. Mutexes of the same paths queue in the same
// lines. Like a Mutex it is a description and stores no ownership.
//
// A hold that loses one of its places ends, and keeps the others until Unlock, or until WithMaxHold's time is over: its
// holder may still be working on what they protect.
type MultiLock struct {
	lock  lock
	paths []string
	locks []lock // one for each path
}

// MultiLock returns the lock of all paths. It does no I/O; no paths, a path that is named twice, and a path or option
// that can't work are reported by every call on it (ErrPath, ErrOption). More paths than the ensemble takes in one
// transaction are refused by each Lock (ErrTooLarge): see WithPacketLimit.
func (c *Client) MultiLock(paths []string, opts ...LockOption) *MultiLock {
	m := &MultiLock{paths: append([]string{}, paths...)}
	seen := map[string]bool{}
	for _, p := range paths {
		l := c.newLock(p, opts)
		if l.err == nil && seen[p] {
			l.err = fmt.Errorf("%w %q: is named twice", ErrPath, p)
		}
		seen[p] = true
		if m.lock.err == nil {
			m.lock.err = l.err
		}
		m.locks = append(m.locks, l)
	}
	switch {
	case len(paths) == 0:
		m.lock = lock{c: c, err: fmt.Errorf("%w: a lock of several paths: there are none", ErrPath)}
	default:
		err := m.lock.err
		m.lock = m.locks[0]
		m.lock.err = err
		m.lock.path = strings.Join(paths, ",") // for messages
	}
	return m
}

// Lock waits until it holds all and returns one hold of them: one context, and one token, which is greater than that of
// every earlier holder of any of the paths. Contract and errors are those of Mutex.Lock; one deadline covers all. Asking
// for it under one's own hold of one of the paths is ErrDeadlock, with reentrancy too, unless that hold is of exactly
// these paths.
func (m *MultiLock) Lock(ctx context.Context) (*Hold, error) {
	return m.use().acquire(ctx, m.request("lock", false))
}

// TryLock takes all or none: ErrBusy, without a write, when one of the lines is not empty. See Mutex.TryLock.
func (m *MultiLock) TryLock(ctx context.Context) (*Hold, error) {
	return m.use().acquire(ctx, m.request("try lock", true))
}

// Do calls fn while it holds all: see Mutex.Do.
func (m *MultiLock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

func (m *MultiLock) request(op string, try bool) request {
	r := request{op: op, try: try, kind: KindMulti, paths: m.paths}
	for i := range m.locks {
		r.queues = append(r.queues, m.locks[i].queue(recipe.Lock))
	}
	return r
}

func samePaths(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	in := map[string]bool{}
	for _, p := range a {
		in[p] = true
	}
	for _, p := range b {
		if !in[p] {
			return false
		}
	}
	return true
}
