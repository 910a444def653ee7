package zklock

import (
	"context"
	"fmt"
	"strings"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// MultiLock is several mutexes that are held together: all or none. All places are taken in one transaction, so that
// every contender stands in the same order in every line, and no order of naming the paths can end in a deadlock. It
// takes one write to enter and one to release, however many paths there are. Mutexes of the same paths stand in the
// same lines. Like a Mutex it is a description and stores no ownership.
//
// A hold that loses one of its places ends, and keeps the other ones until Unlock, or until WithMaxHold's time is over:
// whoever holds it may still be at work on what they guard.
type MultiLock struct {
	b     base
	paths []string
	bases []base
}

// MultiLock returns the lock of all paths. It does no I/O; no paths, a path that is named twice, and a path or option
// that can't work are reported by every call on it (ErrPath, ErrOption). So many that the ensemble would not take them in
// one transaction are refused by each Lock (ErrTooLarge): see WithPacketLimit.
func (c *Client) MultiLock(paths []string, opts ...LockOption) *MultiLock {
	m := &MultiLock{paths: append([]string{}, paths...)}
	seen := map[string]bool{}
	for _, p := range paths {
		b := c.newBase(p, opts)
		if b.err == nil && seen[p] {
			b.err = fmt.Errorf("%w %q: is named twice", ErrPath, p)
		}
		seen[p] = true
		if m.b.err == nil {
			m.b.err = b.err
		}
		m.bases = append(m.bases, b)
	}
	switch {
	case len(paths) == 0:
		m.b = base{c: c, err: fmt.Errorf("%w: a lock of several paths: there are none", ErrPath)}
	default:
		err := m.b.err
		m.b = m.bases[0]
		m.b.err = err
		m.b.path = strings.Join(paths, ",") // for messages
	}
	return m
}

// Lock waits until it holds all and returns one hold of them: one context, and one token, which is greater than that
// of every earlier holder of any of the paths. Contract and errors are those of Mutex.Lock; one deadline covers all.
// Asking for it under one's own hold of one of the paths is ErrDeadlock, with reentrancy too, unless that hold is of
// exactly these paths.
func (m *MultiLock) Lock(ctx context.Context) (*Hold, error) {
	return m.b.lock(ctx, m.request("lock", false))
}

// TryLock takes all or none: ErrBusy, without a write, when somebody stands in one of the lines. See Mutex.TryLock.
func (m *MultiLock) TryLock(ctx context.Context) (*Hold, error) {
	return m.b.acquire(ctx, m.request("try lock", true))
}

// Do calls fn while it holds all: see Mutex.Do.
func (m *MultiLock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

func (m *MultiLock) request(op string, try bool) request {
	return request{op: op, try: try, kind: "multi", paths: m.paths, again: m.reenter, stand: m.stand}
}

// stand takes all places and waits for all.
func (m *MultiLock) stand(ctx context.Context, s *session.Session, r *request) (place, error) {
	queues := make([]recipe.Queue, len(m.bases))
	for i := range m.bases {
		queues[i] = m.bases[i].queue(recipe.Lock)
		queues[i].Queued, queues[i].Retried = r.queue.Queued, r.queue.Retried
	}
	if r.try {
		g, err := recipe.TryAll(ctx, s, queues)
		if err != nil {
			return nil, err
		}
		return g, nil
	}
	g, err := recipe.EnterAll(ctx, s, queues)
	if err != nil {
		return nil, err
	}
	return g, g.Wait(ctx)
}

// reenter is base.reenter for several paths.
func (m *MultiLock) reenter(ctx context.Context) (*Hold, error) {
	for _, p := range m.paths {
		g, err := m.b.c.held(ctx, p, familyMutex)
		switch {
		case err != nil:
			return nil, err
		case g == nil:
			continue
		case !samePaths(g.info.Paths, m.paths):
			return nil, fmt.Errorf("%w: %s", ErrDeadlock, p)
		}
		return m.b.enter(ctx, g, false)
	}
	return nil, nil
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
