package lockfor

import (
	"context"
	"errors"
	"time"

	"github.com/zklock/locker/zklock"
)

// CertmagicLocker is a Locker, a TryLocker and a LockLeaseRenewer of
// github.com/caddyserver/certmagic: see Certmagic.
type CertmagicLocker struct {
	c     *zklock.Client
	dir   string
	opts  []zklock.LockOption
	holds holds
}

// Certmagic returns the locks for a storage of certificates that several hosts share. Each name has
// its lock below dir: see zklock.KeyPath. Put it in front of the locks that the storage itself has:
//
//	type files struct{ certmagic.Storage }
//
//	type storage struct {
//		files
//		*lockfor.CertmagicLocker // its Lock and Unlock, and not those of files
//	}
//
//	certmagic.Default.Storage = storage{
//		files{&certmagic.FileStorage{Path: "/shared"}},
//		lockfor.Certmagic(client, "/locks/certificates", zklock.WithContainer()),
//	}
//
// There is a name for each domain, so WithContainer lets the ensemble remove the paths of names
// that are not used any more.
func Certmagic(c *zklock.Client, dir string, opts ...zklock.LockOption) *CertmagicLocker {
	return &CertmagicLocker{c: c, dir: dir, opts: opts}
}

func (l *CertmagicLocker) mutex(name string) *zklock.Mutex {
	return l.c.Mutex(zklock.KeyPath(l.dir, name), l.opts...)
}

// Lock waits for the lock of the name. Errors are those of zklock.Mutex.Lock.
func (l *CertmagicLocker) Lock(ctx context.Context, name string) error {
	return l.holds.lock(ctx, name, l.mutex(name))
}

// TryLock locks the name if it is free. It returns false if it is not. Errors are those of
// zklock.Mutex.TryLock, without ErrBusy.
func (l *CertmagicLocker) TryLock(ctx context.Context, name string) (bool, error) {
	_, hold, err := l.mutex(name).TryLock(ctx)
	if errors.Is(err, zklock.ErrBusy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.holds.add(name, hold)
	return true, nil
}

// Unlock releases the lock of the name, even if its context has ended. Call it once for each Lock
// and each TryLock that returned true, also if the lock was lost. Errors are those of
// zklock.Hold.Unlock, and ErrNotLocked.
func (l *CertmagicLocker) Unlock(_ context.Context, name string) error {
	return l.holds.unlock(name)
}

// RenewLockLease returns nil if the name is still locked: the client renews a lock's lease by
// itself for as long as it is held. If the name is not locked any more it returns the cause of the
// loss, or ErrNotLocked, and certmagic gives up the attempt to get a certificate. If two calls of
// this process have locked the name, of which one has lost it, both get that error.
func (l *CertmagicLocker) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	return l.holds.err(name)
}
