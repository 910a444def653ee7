package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/zklock"
)

func (a *app) holdCommand() *cobra.Command {
	l := lockFlags{onLoss: lossKill}
	cmd := &cobra.Command{
		Use:     "hold [flags] PATH",
		GroupID: groupRun,
		Short:   "Hold a lock until standard input closes",
		Long: `Take the lock at PATH, print its fencing token and its znode on one line, and hold it until standard input closes or a
signal arrives, as etcdctl lock does. Then the lock is released, and the exit code is 0, or 128+N after signal N.

When the lock is lost it ends with 70, but nothing stops the work that relies on the lock: to run a command under it, use
zklock run. If standard input is closed or empty from the start, as under cron, it ends at once.

` + exitTable,
		Example: `  zklock hold /locks/maintenance                      # until Ctrl-D
  coproc L { zklock hold --try /locks/deploy; }; read -r token znode <&"${L[0]}"   # bash
  …; exec {L[1]}>&-                                   # release`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := l.check(a, cmd, []string{"zklock hold"}); err != nil {
				return err
			}
			return a.hold(&l, args[0])
		},
	}
	l.registerLock(a, cmd)
	l.registerKind(cmd)
	return cmd
}

// hold takes the lock and holds it until the standard input ends or a signal arrives.
func (a *app) hold(l *lockFlags, path string) error {
	if l.waitSet {
		a.conn.patience = min(a.conn.patience, l.wait)
	}
	line := a.newStatusLine(path)
	began := time.Now()
	return a.with(func(ctx context.Context, c *zklock.Client) (err error) {
		if !l.try {
			if err := nested(ctx, c, path, l.permits, l.size); err != nil {
				return err
			}
		}
		line.connected(c)
		line.follow(ctx)
		h, err := l.take(ctx, a, c, path, l.wait-time.Since(began))
		line.end()
		if err != nil {
			return err
		}
		defer func() {
			// If the release takes too long, the end of the session, which is closed next,
			// releases the lock.
			released := h.Unlock()
			switch {
			case errors.Is(released, zk.ErrNoAuth): // the lock was ours until now
				notice(a.err, "%v", bare{released})
			case released != nil:
				err = lostError(released)
			}
		}()
		return a.untilInputEnds(ctx, h)
	}, zklock.WithHooks(line.hooks()))
}

// untilInputEnds prints what is held, and waits for the end of the standard input. It returns
//   - nil if the input or the hold has ended: the release reports a loss;
//   - ctx's error if ctx ends first;
//   - the error of printing or reading.
func (a *app) untilInputEnds(ctx context.Context, h *zklock.Hold) error {
	if _, err := fmt.Fprintln(a.out, int64(h.Token()), h.Node()); err != nil {
		return err
	}
	input := make(chan error, 1)
	go func() { // ends with the input, or with the process
		_, err := io.Copy(io.Discard, a.in)
		input <- err
	}()
	select {
	case err := <-input:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-h.Context().Done():
		return nil
	}
}
