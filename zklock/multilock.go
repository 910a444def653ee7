package zklock

import (
	"context"
	"fmt"
	"slices"
)

// MultiLock is several mutexes that are held together: all or none. One transaction takes all
// places, so there is no deadlock, in whatever order the paths are named. Mutexes of the same paths
// queue in the same lines.
//
// A hold that loses one of its places ends, and keeps the others until Unlock, or until
// WithMaxHold's time is over: its holder may still be working on what they protect.
type MultiLock struct{ lock }

// MultiLock returns the lock of all paths. Calls fail with ErrPath if paths is empty or names one
// twice, and with ErrTooLarge if one transaction can't take all: see WithJuteMaxBuffer.
func (c *Client) MultiLock(paths []string, opts ...LockOption) *MultiLock {
	m := &MultiLock{c.newLock(&multiLockKind, opts, slices.Clone(paths)...)}
	if len(paths) == 0 {
		m.err = fmt.Errorf("%w: multi lock: has no paths", ErrPath)
	}
	return m
}

// Lock waits until it holds all paths and returns one hold of them, whose token is greater than
// that of every earlier holder of any of the paths. Contract and errors are those of Mutex.Lock.
// With the context of a hold of one of the paths it returns ErrDeadlock. WithReentrancy changes
// that only if the hold has exactly these paths.
func (m *MultiLock) Lock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "lock", LockInfo{Kind: KindMulti})
}

// TryLock takes all or none: ErrBusy, without a write, when one of the lines is not empty. See
// Mutex.TryLock.
func (m *MultiLock) TryLock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "try lock", LockInfo{Kind: KindMulti, Try: true})
}

// Do calls fn while it holds all: see Mutex.Do.
func (m *MultiLock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

// TryDo calls fn while it holds all, if none of the lines has another contender. It returns whether
// fn was called: see Mutex.TryDo.
func (m *MultiLock) TryDo(
	ctx context.Context, fn func(ctx context.Context) error,
) (ran bool, err error) {
	return tryDo(ctx, m.TryLock, fn)
}

func samePaths(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
