package zklock

import (
	"context"
)

// RWMutex is a lock that one writer or any number of readers in the whole fleet can have, in order
// of arrival: a reader that comes after a waiting writer waits behind it.
//
// Its znodes are named as Apache Curator's InterProcessReadWriteLock names them, so that Java
// programs can share the path. A Mutex can't: ErrConflict.
type RWMutex struct{ lock }

// RWMutex returns the read/write lock whose contenders queue below path. Neither lock can be turned
// into the other.
func (c *Client) RWMutex(path string, opts ...LockOption) *RWMutex {
	return &RWMutex{c.newLock(&rwMutexKind, opts, path)}
}

// Lock waits until no other client reads or writes and returns the hold of the write lock. Contract
// and errors are those of Mutex.Lock. With the context of a read hold it is ErrDeadlock, with
// reentrancy too.
func (m *RWMutex) Lock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "lock", LockInfo{Kind: KindWrite})
}

// TryLock returns the hold of the write lock if no other contender is in line: see Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "try lock", LockInfo{Kind: KindWrite, Try: true})
}

// RLock waits until no writer that came before holds or waits, and returns a hold of the read lock.
// Contract and errors are those of Mutex.Lock. With the context of a read hold it needs
// WithReentrancy, because a writer may have queued in between; with that of a write hold it is
// ErrDeadlock.
func (m *RWMutex) RLock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "read lock", LockInfo{Kind: KindRead})
}

// TryRLock returns a hold of the read lock if no writer holds or waits: see Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (context.Context, *Hold, error) {
	return m.acquire(ctx, "try read lock", LockInfo{Kind: KindRead, Try: true})
}

// Do calls fn while it holds the write lock: see Mutex.Do.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

// TryDo calls fn while it holds the write lock, if no other contender is in line. It returns
// whether fn was called: see Mutex.TryDo.
func (m *RWMutex) TryDo(
	ctx context.Context, fn func(ctx context.Context) error,
) (ran bool, err error) {
	return tryDo(ctx, m.TryLock, fn)
}

// RDo calls fn while it holds the read lock: see Mutex.Do.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.RLock, fn)
}

// TryRDo calls fn while it holds the read lock, if no writer holds or waits. It returns whether fn
// was called: see Mutex.TryDo.
func (m *RWMutex) TryRDo(
	ctx context.Context, fn func(ctx context.Context) error,
) (ran bool, err error) {
	return tryDo(ctx, m.TryRLock, fn)
}
