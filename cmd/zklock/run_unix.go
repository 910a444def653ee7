//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/zklock"
)

// run is zklock run.
func (a *app) run(l *lockFlags, path string, argv []string) error {
	if l.once() {
		return a.underLock(l, path, argv, a.onlyOnce(l, path))
	}
	return a.underLock(l, path, argv, a.holding(l.onLoss, func(ctx context.Context, c *zklock.Client, left time.Duration) (*zklock.Hold, error) {
		return l.take(ctx, a, c, path, left)
	}))
}

// holding is the section of an ordinary lock: taken and released. A loss that only the release
// finds is told here.
func (a *app) holding(onLoss string, take taker) section {
	return func(ctx context.Context, c *zklock.Client, left time.Duration, fn func(h *zklock.Hold) (started bool, err error)) error {
		h, err := take(ctx, c, left)
		if err != nil {
			return err
		}
		_, err = fn(h)
		told := codeOf(err) == exitLost || h.Err() != nil && onLoss == lossIgnore
		// If the release takes too long, the end of the session, which is closed next, releases the
		// lock.
		lost := h.Unlock()
		if errors.Is(lost, zk.ErrNoAuth) { // the lock was ours until now
			notice(a.err, "%v", bare{lost})
			return err
		}
		if lost == nil || told {
			return err
		} else if onLoss == lossIgnore {
			notice(a.err, "lock lost before the command had ended: %v", bare{lost})
			return err
		} else {
			return lostError(lost)
		}
	}
}

// underLock takes the lock and runs the command; with --again it repeats that until the command has
// ended while the lock was held, or zklock was asked to end it.
func (a *app) underLock(l *lockFlags, path string, argv []string, under section) (err error) {
	j := &job{a: a, args: argv, onLoss: l.onLoss, maxHold: l.maxHold}
	if j.file, err = lookup(argv[0]); err != nil {
		return err
	}
	if err := adopt(); err != nil {
		return fmt.Errorf("can't reap the processes that the command leaves behind: %w", err)
	}
	j.reaper = newReaper()
	defer j.reaper.close()
	j.sigs = catchSignals()
	if l.elect {
		j.sigs.standBy()
	}
	var like syscall.Signal
	for terms := 0; ; terms++ {
		like, err = a.attempt(j, l, path, under)
		code := codeOf(err)
		if !l.again || j.done || j.asked || code != exitLost && (code != exitUnreachable || terms == 0) {
			break
		}
		if code == exitUnreachable {
			notice(a.err, "%v; trying again", err)
		}
		time.Sleep(time.Second) // keeps repeated immediate losses from loading the ensemble
	}
	if like != 0 { // Ctrl-C went to the command only: a script around zklock must be interrupted as well
		if j.lent {
			_ = syscall.Kill(0, like) // we are one of the group, so there is somebody whom we may signal
		}
		dieOf(like)
	}
	return err
}

// attempt takes the lock once and runs the command under it.
func (a *app) attempt(j *job, l *lockFlags, path string, under section) (like syscall.Signal, err error) {
	if j.guard, err = startGuard(j.reaper, j.death()); err != nil {
		return 0, err
	}
	defer j.guard.end()
	ctx, heard := j.sigs.whileWaiting(context.Background())
	line := a.newLine(path)
	line.follow(ctx)
	began := time.Now()
	waited := sync.OnceValue(func() error { // ends the wait; returns an error if a signal has
		sig, interrupted := heard()
		line.end()
		if interrupted {
			return &exitError{exitSignal + int(sig), nil}
		}
		return nil
	})
	c, err := a.dialWithin(ctx, l, zklock.WithHooks(line.hooks()))
	if err == nil {
		defer func() { err = errors.Join(err, c.Close()) }()
		line.connected(c)
		if !l.try {
			err = nested(ctx, c, path, l.permits, l.size)
		}
	}
	if err == nil {
		err = under(ctx, c, l.wait-time.Since(began), func(h *zklock.Hold) (started bool, err error) {
			if err := waited(); err != nil {
				return false, err
			}
			s, err := c.Session(context.Background())
			if err == nil {
				err = h.Err()
			}
			if err != nil {
				return false, err // lost before the command was started
			}
			j.grace = l.graceOf(s.Timeout())
			like, err = j.run(h, s.Timeout(), c.SessionStatus().TickTime, append(lockEnvironment(path, h, s.ID()), a.conn.handed...))
			if l.elect && err != nil && !j.asked {
				unsealed.TermFailed(h)
			}
			return j.started, err
		})
	}
	if interrupted := waited(); interrupted != nil {
		return 0, interrupted
	}
	if errors.Is(err, zklock.ErrLost) {
		j.done = false // the command has ended, but perhaps not under the lock
	}
	return like, err
}

// dialWithin is dial that takes --wait into account.
func (a *app) dialWithin(ctx context.Context, l *lockFlags, more ...zklock.Option) (*zklock.Client, error) {
	if l.waitSet {
		a.conn.patience = min(a.conn.patience, l.wait)
	}
	return a.dial(ctx, more...)
}

// elect is zklock elect.
func (a *app) elect(l *lockFlags, path string, argv []string, value string) error {
	return a.underLock(l, path, argv, a.holding(l.onLoss, campaign(path, value, l)))
}

// interruptible calls fn with a context that ends with the first signal that ends programs; then
// the exit code says so.
func (a *app) interruptible(fn func(ctx context.Context) error) error {
	ctx, heard := catchSignals().whileWaiting(context.Background())
	err := fn(ctx)
	if sig, ok := heard(); ok {
		return &exitError{exitSignal + int(sig), nil}
	}
	return err
}
