package zklock

import (
	"context"
	"fmt"
	"slices"
)

// MultiLock is several mutexes that are held together: all or none. All places are taken in one transaction, so that
// contenders are in the same order in every line, and there is no deadlock in whatever order the paths are named. It
// takes one write to enter and one to release, however many paths there are. Mutexes of the same paths queue in the same
// lines. Like a Mutex it is a description and stores no ownership.
//
// A hold that loses one of its places ends, and keeps the others until Unlock, or until WithMaxHold's time is over: its
// holder may still be working on what they protect.
type MultiLock struct{ lock }

// MultiLock returns the lock of all paths. It does no I/O; no paths, a path that is named twice, and a path or option
// that can't work are reported by every call on it (ErrPath, ErrOption). More paths than the ensemble takes in one
// transaction are refused by each Lock (ErrTooLarge): see WithPacketLimit.
func (c *Client) MultiLock(paths []string, opts ...LockOption) *MultiLock {
	m := &MultiLock{c.newLock("multi lock", opts, slices.Clone(paths)...)}
	if len(paths) == 0 {
		m.err = fmt.Errorf("%w: multi lock: has no paths", ErrPath)
	}
	return m
}

// Lock waits until it holds all and returns one hold of them: one context, and one token, which is greater than that of
// every earlier holder of any of the paths. Contract and errors are those of Mutex.Lock; one deadline covers all. Asking
// for it under one's own hold of one of the paths is ErrDeadlock, with reentrancy too, unless that hold is of exactly
// these paths.
func (m *MultiLock) Lock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, request{op: "lock", kind: KindMulti})
}

// TryLock takes all or none: ErrBusy, without a write, when one of the lines is not empty. See Mutex.TryLock.
func (m *MultiLock) TryLock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, request{op: "try lock", try: true, kind: KindMulti})
}

// Do calls fn while it holds all: see Mutex.Do.
func (m *MultiLock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

// samePaths compares sets: neither names a path twice.
func samePaths(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
