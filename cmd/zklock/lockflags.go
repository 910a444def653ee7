package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/zklock"
)

// What to do with the command when the lock is lost.
const (
	lossKill   = "kill"   // SIGTERM when the lease is in doubt, SIGKILL before it ends
	lossTerm   = "term"   // SIGTERM only
	lossIgnore = "ignore" // nothing
)

// lockFlags are the flags of a command that runs under a lock.
type lockFlags struct {
	wait      time.Duration
	waitSet   bool
	onLoss    string
	grace     time.Duration
	graceSet  bool
	maxHold   time.Duration
	owner     string
	container bool
	aclText   []string
	acl       []zk.ACL

	// Of run and hold only.
	try, shared, exclusive bool
	permits, size          int

	// Of elect only.
	elect, again bool
	rank         int

	// Of run only: see once.go.
	key      string
	every    time.Duration
	atMost   bool
	everySet bool
}

// register adds the flags common to commands that run under a lock.
func (l *lockFlags) register(a *app, cmd *cobra.Command) {
	l.registerLock(a, cmd)
	f := cmd.Flags()
	f.StringVar(&l.onLoss, "on-loss", lossKill,
		"`what` to do when the lock is lost: kill, term or ignore")
	f.DurationVar(&l.grace, "grace", 0, "time from SIGTERM to SIGKILL, "+
		"at most a quarter of the session timeout; default a fifth")
	f.DurationVar(&l.maxHold, "max-hold", 0, "end the command when it has held the lock "+
		"for so long: SIGTERM, then SIGKILL after the grace")
}

// registerLock adds the flags of taking a lock.
func (l *lockFlags) registerLock(a *app, cmd *cobra.Command) {
	a.busyFlag(cmd)
	f := cmd.Flags()
	f.DurationVar(&l.wait, "wait", 0, "wait for at most this long; default as long as it takes")
	f.StringVar(&l.owner, "owner", "", "the `name` that others see; default the command's")
	f.BoolVar(&l.container, "container", false,
		"let the ensemble remove the lock's znode when it is no longer used")
	f.StringArrayVar(&l.aclText, "acl", nil, "access `list` of the znodes that it creates, "+
		"as zkCli.sh writes it: scheme:id:perms,...\n"+
		"(perms of c, d, r, w, a), for example auth::cdrwa with --auth; default world:anyone:cdrwa")
}

// registerKind adds the flags that choose the kind of lock.
func (l *lockFlags) registerKind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&l.try, "try", false,
		"don't wait for the lock, only for a server: 75 when the lock is not free")
	f.BoolVarP(&l.shared, "shared", "s", false,
		"share the lock with others that use --shared (the readers of a read/write lock)")
	f.BoolVarP(&l.exclusive, "exclusive", "x", false,
		"exclude those that use --shared (the writer of a read/write lock); without\n"+
			"--shared and --exclusive PATH is a plain lock, which can't be mixed with these")
	f.IntVarP(&l.permits, "permits", "n", 1,
		"take this many permits of a lock that has --of of them")
	f.IntVar(&l.size, "of", 0,
		"how many permits there are, when the lock has no size yet (see zklock resize)")
}

// check refuses invalid combinations, before any I/O. argv is the command, and its name is the
// default owner.
func (l *lockFlags) check(a *app, cmd *cobra.Command, argv []string) error {
	changed := cmd.Flags().Changed
	l.waitSet, l.graceSet = changed("wait"), changed("grace")
	if err := l.checkOnce(changed); err != nil {
		return err
	}
	if err := l.checkLock(changed); err != nil {
		return err
	}
	if err := l.checkLoss(changed, a.conn.timeout); err != nil {
		return err
	}
	var err error
	if l.acl, err = parseACL(l.aclText); err != nil {
		return err
	}
	if l.owner == "" {
		l.owner = filepath.Base(argv[0])
	}
	return nil
}

// checkLock refuses invalid combinations of the flags of taking a lock and of its kind.
func (l *lockFlags) checkLock(changed func(flag string) bool) error {
	switch {
	case l.try && l.waitSet:
		return usagef("--try and --wait: only one of them")
	case l.waitSet && l.wait <= 0:
		return usagef("--wait %v: must be more than 0; not to wait at all is --try", l.wait)
	case l.shared && l.exclusive:
		return usagef("--shared and --exclusive: only one of them")
	case (l.shared || l.exclusive) && changed("of"):
		return usagef("--of: a lock with permits is neither --shared nor --exclusive")
	case changed("permits") && !changed("of"):
		return usagef("-n %d: needs --of SIZE, the number of permits that there are", l.permits)
	case changed("of") && (l.size < 1 || l.permits < 1 || l.permits > l.size):
		return usagef("-n %d --of %d: want 1 ≤ PERMITS ≤ SIZE", l.permits, l.size)
	}
	return nil
}

// checkLoss refuses invalid combinations of the flags of a lock's loss and of the command's end.
func (l *lockFlags) checkLoss(changed func(flag string) bool, timeout time.Duration) error {
	most := timeout / gracePart
	switch {
	case l.onLoss != lossKill && l.onLoss != lossTerm && l.onLoss != lossIgnore:
		return usagef("--on-loss %s: want kill, term or ignore", l.onLoss)
	case l.graceSet && (l.grace < 0 || l.grace > most):
		return usagef("--grace %v: want 0 to %v, a quarter of the session timeout "+
			"(--session-timeout)", l.grace, most)
	case changed("max-hold") && l.maxHold <= 0:
		return usagef("--max-hold %v: must be more than 0", l.maxHold)
	case changed("max-hold") && l.onLoss == lossIgnore:
		return usagef("--max-hold and --on-loss ignore: only one of them")
	}
	return nil
}

// graceOf returns the grace for the session timeout that was granted.
func (l *lockFlags) graceOf(timeout time.Duration) time.Duration {
	if l.graceSet {
		return l.grace
	}
	return timeout / 5
}

// options returns the options of the lock. left is the rest of --wait.
func (l *lockFlags) options(left time.Duration) []zklock.LockOption {
	opts := []zklock.LockOption{zklock.WithOwner(l.owner)}
	if l.waitSet {
		opts = append(opts, zklock.WithMaxWait(max(left, 0).Truncate(10*time.Millisecond)))
	}
	if len(l.acl) > 0 {
		opts = append(opts, zklock.WithACL(l.acl...))
	}
	if l.container {
		opts = append(opts, zklock.WithContainer())
	}
	return opts
}

// take takes the lock of run and hold. left is the rest of --wait.
func (l *lockFlags) take(
	ctx context.Context, a *app, c *zklock.Client, path string, left time.Duration,
) (*zklock.Hold, error) {
	if l.try {
		// This bounds the wait for a connection, since --wait does not count here.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.conn.patience)
		defer cancel()
	}
	_, h, err := l.lock(ctx, c, path, left)
	if errors.Is(err, zklock.ErrConflict) && !l.shared && !l.exclusive && l.size == 0 {
		err = fmt.Errorf("%w (a path that is used with --shared needs --exclusive, "+
			"one with permits --of)", err)
	}
	return h, err
}

// lock takes the kind of lock that the flags name.
func (l *lockFlags) lock(
	ctx context.Context, c *zklock.Client, path string, left time.Duration,
) (context.Context, *zklock.Hold, error) {
	opts := l.options(left)
	switch {
	case l.size > 0 && l.try:
		return c.Semaphore(path, l.size, opts...).TryAcquire(ctx, l.permits)
	case l.size > 0:
		return c.Semaphore(path, l.size, opts...).Acquire(ctx, l.permits)
	case l.shared && l.try:
		return c.RWMutex(path, opts...).TryRLock(ctx)
	case l.shared:
		return c.RWMutex(path, opts...).RLock(ctx)
	case l.exclusive && l.try:
		return c.RWMutex(path, opts...).TryLock(ctx)
	case l.exclusive:
		return c.RWMutex(path, opts...).Lock(ctx)
	case l.try:
		return c.Mutex(path, opts...).TryLock(ctx)
	}
	return c.Mutex(path, opts...).Lock(ctx)
}

// lostError returns the error with which zklock ends if it has found its lock lost.
func lostError(cause error) error {
	return &exitError{exitLost, fmt.Errorf("lock lost: %w", bare{cause})}
}
