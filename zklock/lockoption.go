package zklock

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// LockOption configures one lock. Every call on the lock reports an option that can't work, or that
// its kind can't have (ErrInvalid), before any I/O.
type LockOption struct{ set func(*lockOptions) error }

type lockOptions struct {
	wait, maxHold        time.Duration
	waitSet              bool
	reentrant, container bool
	owner                string
	acl                  []zk.ACL
	localHandoff         bool
}

func newLockOptions(k *kind, opts []LockOption) (o lockOptions, err error) {
	for _, opt := range opts {
		if opt.set == nil {
			return o, fmt.Errorf("%w: lock option: is the zero value", ErrInvalid)
		}
		if err := opt.set(&o); err != nil {
			return o, err
		}
	}
	if o.reentrant && k.notReentrant != "" {
		err = fmt.Errorf("%w: WithReentrancy is not for %s", ErrInvalid, k.notReentrant)
	}
	if o.acl == nil {
		o.acl = openToAll
	}
	return o, err
}

// openToAll is the access list of locks without WithACL. It is never changed.
var openToAll = session.WorldACL()

// WithMaxWait bounds every Lock: after d it returns ErrBusy if it is in line, and ErrUnreachable if
// no server has answered. With d = 0 Lock does not wait, like TryLock. Default: as long as the
// context lasts.
func WithMaxWait(d time.Duration) LockOption {
	return LockOption{unless(d < 0, func(o *lockOptions) {
		o.wait, o.waitSet = d, true
	}, "wait %v: is negative", d)}
}

// WithMaxHold ends a hold after d, with the cause ErrMaxHold: first its context, which has that
// deadline, then its znode. It guards against work that hangs; work that ignores its context is
// then unprotected. Default: no limit. Reentrant holds use the first's limit.
func WithMaxHold(d time.Duration) LockOption {
	return LockOption{unless(d <= 0, func(o *lockOptions) {
		o.maxHold = d
	}, "max hold %v: is not positive", d)}
}

// WithReentrancy lets a Lock with the context of a hold of the same lock succeed at once. Holds are
// counted, and the last Unlock releases the lock. Default: such a call is ErrDeadlock.
func WithReentrancy() LockOption {
	return LockOption{func(o *lockOptions) error { o.reentrant = true; return nil }}
}

// WithOwner names the owner for other clients, besides host and process id. At most 64 KB; errors
// and logs show 64 characters of it. Default: none.
func WithOwner(name string) LockOption {
	return LockOption{unless(len(name) > maxData, func(o *lockOptions) { o.owner = name },
		"owner of %d bytes: is longer than 64 KB", len(name))}
}

// maxData bounds the bytes of a candidate's value and WithOwner: a znode is no place for documents.
const maxData = 64 << 10

// WithACL sets the access list of every znode that the lock makes: the contenders' and, where they
// are missing, the lock's directory and its parents. Default: everybody may do everything.
//
// All who use a lock must be able to read each other's znodes, and to create and delete in its
// directory; those of a semaphore also to write. Who may delete there may delete the holder's
// znode. A client is not notified when a znode that it may not read goes: it looks again after a
// session timeout, later once a minute.
func WithACL(acl ...zk.ACL) LockOption {
	return LockOption{unless(len(acl) == 0,
		func(o *lockOptions) { o.acl = append([]zk.ACL{}, acl...) },
		"ACL: is empty, so that nobody could ever delete the znode")}
}

// WithContainer makes the lock's directory, if it is missing, a container: the ensemble deletes it
// some time after the last contender has gone. Use it when the set of keys is unbounded. Default:
// the directory stays.
func WithContainer() LockOption {
	return LockOption{func(o *lockOptions) error { o.container = true; return nil }}
}
