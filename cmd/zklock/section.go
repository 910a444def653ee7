package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/zklock"
)

// # How a command gets under its lock
//
// Each line calls the next one:
//
//	underLock       makes one attempt; with --again, more
//	  attempt.run   starts the guard and connects
//	    section     takes the lock, calls the work and releases the lock:
//	                holding for an ordinary lock, onlyOnce for a job
//	      work      ends the wait and runs the command: attempt.runCommand
//	        job.run supervises the command until it has ended
//
// A section knows the lock and nothing of the command. The work knows the command and nothing of
// how the lock was taken.

// work is what is done while a lock is held: it runs the command. It reports whether the command
// was started.
type work func(h *zklock.Hold) (started bool, err error)

// section takes the lock, calls do, and releases the lock. left is the rest of --wait.
type section func(ctx context.Context, c *zklock.Client, left time.Duration, do work) error

// taker waits for a lock, for the rest of --wait.
type taker func(ctx context.Context, c *zklock.Client, left time.Duration) (*zklock.Hold, error)

// holding returns the section of an ordinary lock, which is taken and released. The section reports
// a loss that only the release finds.
func (a *app) holding(onLoss string, take taker) section {
	return func(ctx context.Context, c *zklock.Client, left time.Duration, do work) error {
		h, err := take(ctx, c, left)
		if err != nil {
			return err
		}
		_, err = do(h)
		ignoredLoss := onLoss == lossIgnore && h.Err() != nil
		alreadyReported := ignoredLoss || codeOf(err) == exitLost
		// If the release takes too long, the end of the session, which is closed next, releases the
		// lock.
		released := h.Unlock()
		switch {
		case errors.Is(released, zk.ErrNoAuth): // the lock was ours until now
			notice(a.err, "%v", bare{released})
		case released == nil, alreadyReported:
		case onLoss == lossIgnore:
			notice(a.err, "lock lost before the command had ended: %v", bare{released})
		default:
			return lostError(released)
		}
		return err
	}
}
