package zklock

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// LockOption configures one lock. An option that can't work is reported by every call on the lock (ErrOption), before
// any I/O.
type LockOption struct{ set func(*lockOptions) error }

type lockOptions struct {
	wait      time.Duration
	waitSet   bool
	maxHold   time.Duration
	reentrant bool
	owner     string
	data      []byte
	acl       []zk.ACL
	verifyACL bool
	container bool
	delay     time.Duration
	delaySet  bool
	handoff   int           // 0: none
	keep      time.Duration // 0: not
}

// maxData bounds WithData and WithOwner: a znode is no place for documents, and the server's limit is 1 MB.
const maxData = 64 << 10

func newLockOptions(opts []LockOption) (lockOptions, error) {
	o := lockOptions{acl: session.WorldACL()}
	for _, opt := range opts {
		if opt.set == nil {
			return o, fmt.Errorf("%w: lock option: is the zero value", ErrOption)
		}
		if err := opt.set(&o); err != nil {
			return o, err
		}
	}
	if o.keep > 0 && o.handoff == 0 {
		return o, fmt.Errorf("%w: idle keeping for %v: needs WithLocalHandoff", ErrOption, o.keep)
	}
	return o, nil
}

// WithWait bounds every Lock on the lock: after d in line it returns ErrBusy. When there was no connection in all that
// time, so that nobody can say whether the lock is busy, the error is that of a context whose deadline is over, and says
// which servers were tried. With d = 0 Lock does not wait at all, as TryLock. A deadline of the context's own is kept
// as well. Default: as long as the context lasts.
func WithWait(d time.Duration) LockOption {
	return LockOption{func(o *lockOptions) error {
		if d < 0 {
			return fmt.Errorf("%w: wait %v: is negative", ErrOption, d)
		}
		o.wait, o.waitSet = d, true
		return nil
	}}
}

// WithMaxHold ends a hold by itself after d, with the cause ErrMaxHold: its context first, then its znode. It is a
// net for work that hangs; work that ignores its context is then no longer protected. Default: no limit.
func WithMaxHold(d time.Duration) LockOption {
	return LockOption{func(o *lockOptions) error {
		if d <= 0 {
			return fmt.Errorf("%w: max hold %v: is not positive", ErrOption, d)
		}
		o.maxHold = d
		return nil
	}}
}

// WithReentrancy lets a Lock whose context comes from Hold.Context of the same lock succeed at once: it counts up, and
// the last Unlock releases. Default: such a call is ErrDeadlock.
func WithReentrancy() LockOption {
	return LockOption{func(o *lockOptions) error { o.reentrant = true; return nil }}
}

// WithOwner names the owner to others who look at the line, beside host and process id. At most 64 KB. Default: none.
func WithOwner(name string) LockOption {
	return LockOption{func(o *lockOptions) error {
		if len(name) > maxData {
			return fmt.Errorf("%w: owner of %d bytes: is longer than 64 KB", ErrOption, len(name))
		}
		o.owner = name
		return nil
	}}
}

// WithData puts bytes of the program's own into the znode, for others who look at the line. At most 64 KB.
// Default: none.
func WithData(data []byte) LockOption {
	return LockOption{func(o *lockOptions) error {
		if len(data) > maxData {
			return fmt.Errorf("%w: data of %d bytes: are longer than 64 KB", ErrOption, len(data))
		}
		o.data = append([]byte{}, data...)
		return nil
	}}
}

// WithACL sets the access list of every znode that the lock makes: the contenders' and, where they are missing, the
// lock's directory and its parents. Contenders need create and read on the directory, delete on it too to release,
// and, with WithLockDelay, write. Default: everybody may do everything.
//
// Contenders of one lock should be able to read each other's znodes: who may not read a znode is not told by the ensemble
// that it has gone. One that waits behind such a znode finds that out after 0.3 s, and then lists the directory, first
// after another 0.3 s and in the end every eighth of the session timeout, so that its turn comes later by as much.
//
// A directory that is there already keeps its ACL, whoever made it, and who may delete in the directory may delete any
// contender, a holder's znode among them: see WithVerifiedACL.
func WithACL(acl ...zk.ACL) LockOption {
	return LockOption{func(o *lockOptions) error {
		if len(acl) == 0 {
			return fmt.Errorf("%w: ACL: is empty, so that nobody could ever delete the znode", ErrOption)
		}
		o.acl = append([]zk.ACL{}, acl...)
		return nil
	}}
}

// WithVerifiedACL refuses the lock (ErrConflict, with what differs) when its directory has another ACL than WithACL says, or
// than everybody may do everything: somebody else made the directory before, or has changed its ACL. Each call that queues
// asks once its znode stands in the directory, which costs one round trip more, with two reads for each path; it needs READ
// or ADMIN on both. A change that is made later, while the call waits or holds, is not noticed, nor are the parents looked
// at: who may delete in the directory's parent can at most delete an empty one. Passwords of digest users are compared as
// far as the ensemble shows them, which it does to those who have ADMIN. Default: not verified.
func WithVerifiedACL() LockOption {
	return LockOption{func(o *lockOptions) error { o.verifyACL = true; return nil }}
}

// WithContainer makes the lock's directory, if it is missing, a container: the ensemble deletes it some time after the
// last contender has gone. For locks on keys without number. Needs ZooKeeper 3.6. Default: the directory stays.
func WithContainer() LockOption {
	return LockOption{func(o *lockOptions) error { o.container = true; return nil }}
}

// WithLockDelay keeps the lock from the next holder for d after a loss (not after a release), so that work of the lost
// holder that is still under way somewhere can end. d is counted from the moment at which the next in line finds the
// loss. Every contender of the path must use the option; the delay that counts is the lost holder's. A hold that ended
// by WithMaxHold counts as lost. Who holds is noted in the data of the lock's path; data there that are somebody else's
// stay, and are ErrConflict. It costs two reads and a write more for each Lock, and a read for each Unlock. At most
// an hour; default: no delay.
func WithLockDelay(d time.Duration) LockOption {
	return LockOption{func(o *lockOptions) error {
		if d < 0 || d > recipe.MaxDelay {
			return fmt.Errorf("%w: lock delay %v: is not between 0 and %v", ErrOption, d, recipe.MaxDelay)
		}
		o.delay, o.delaySet = d, true
		return nil
	}}
}

// WithLocalHandoff lets the goroutines of this process that lock one Mutex, through one Client, share one place in the
// ensemble's line: the process queues once, and a hold that is released goes on to the next that waits here, in order of
// arrival, with no request at all. That is many hundred times faster than a znode for each, and what other libraries call
// an unfair lock. It is for a Mutex, and so for Do and Guard; the other kinds refuse it (ErrOption). n is at least 1.
//
// Between processes it is fair in turns. As long as nobody waits outside, a process hands on as long as it likes. When it
// sees somebody outside (it watches the line while it hands on), it hands on at most n times more, and for at most a
// second, then it deletes its znode, and those who wait here queue again, behind. A holder that takes longer than that
// second is not interrupted. Until the process has looked, which takes it one round trip, it counts as if somebody
// waited.
//
// Locks of one path share a place if they agree in what the znode depends on: WithOwner, WithData, WithACL,
// WithVerifiedACL, WithContainer, WithLockDelay, WithLocalHandoff and WithIdleKeep. Others, also in the same process, exclude each other
// through the ensemble as always. WithWait, WithMaxHold and WithReentrancy may differ.
//
// A hold that was handed on inside the process may have the token of the one before it, since both stand on one znode;
// a store that compares tokens takes that for the same holder, and loses nothing: inside the process exclusion does not
// rest on a lease, and nobody is overtaken there. It never has the token of another process's hold. After any end but an
// Unlock – the session's, WithMaxHold, a znode that was deleted – the place is not handed on, and the next hold has a
// greater token. Nor is it after a Multi that was under way at Unlock, or whose outcome was unknown. Everything else means
// what it means without the option; Queue shows one contender for the process, and Break ends the present hold and sends
// those who wait here to the end of the line.
//
// Lock takes a place that the process has without asking the ensemble: the lease is looked at, no connection is needed.
// TryLock is ErrBusy, without a request, while anybody in the process holds the lock or waits for it. Unlock returns when
// the lock is handed on.
func WithLocalHandoff(n int) LockOption {
	return LockOption{func(o *lockOptions) error {
		if n < 1 {
			return fmt.Errorf("%w: local handoff of %d: is less than 1", ErrOption, n)
		}
		o.handoff = n
		return nil
	}}
}

// maxIdleKeep bounds WithIdleKeep: a kept place has the session's lease confirmed as a held lock has.
const maxIdleKeep = time.Minute

// WithIdleKeep keeps the znode for d after the last Unlock in this process, if nobody waits outside, so that the next
// Lock here costs nothing. Whoever queues outside makes it go at once: the process watches the line for that. A TryLock
// elsewhere does not queue, and is ErrBusy while the znode is kept, though nobody holds the lock; with locks that others
// take by TryLock, or by WithWait(0), don't use it. Queue shows the process as the holder meanwhile. It needs
// WithLocalHandoff. d is positive and at most a minute. Default: not kept.
func WithIdleKeep(d time.Duration) LockOption {
	return LockOption{func(o *lockOptions) error {
		if d <= 0 || d > maxIdleKeep {
			return fmt.Errorf("%w: idle keeping for %v: is not between 0 and %v", ErrOption, d, maxIdleKeep)
		}
		o.keep = d
		return nil
	}}
}
