package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock"
)

// Evict removes the contender with token t from the line of path, whichever client owns it. It is
// meant for a holder that hangs. The znode is deleted only if it still has that token. A holder
// that uses this library loses its hold a moment later (zklock.ErrNodeDeleted), but its work is not
// stopped: only the token and Hold.Multi protect against that.
//
// It returns nil if the contender was removed. It returns
//   - zk.ErrNoNode if no contender has that token;
//   - an error that matches zklock.ErrUnknownOutcome if the contender may have been removed;
//   - otherwise the errors of ReadQueue.
//
// It costs a write, and at most half as much as Queue.
func Evict(ctx context.Context, c *zklock.Client, path string, t zklock.Token) error {
	return failed("evict", path, evict(ctx, c, path, t))
}

func evict(ctx context.Context, c *zklock.Client, path string, t zklock.Token) error {
	s, name, err := find(ctx, c, path, t)
	if err == nil && name == "" {
		err = fmt.Errorf("nobody in line has the token %d: %w", t, zk.ErrNoNode)
	}
	if err != nil {
		return err
	}
	for name != "" {
		// The full name is never used again, so this deletes no other contender.
		err = s.Delete(ctx, path+"/"+name, -1)
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if s, name, err = find(ctx, c, path, t); err != nil {
			return err
		}
	}
	return nil // it has left by itself
}

// find returns the name of the contender in dir with token t, or "" if there is none, and the
// session that has read it.
func find(
	ctx context.Context, c *zklock.Client, dir string, t zklock.Token,
) (*session.Session, string, error) {
	s, err := settled(ctx, c, dir)
	if err != nil {
		return nil, "", err
	}
	names, err := list(ctx, s, dir)
	if err != nil {
		return nil, "", err
	}
	if t <= 0 { // the token that ReadQueue shows for a znode that may not be read
		return s, "", nil
	}
	for step := range slices.Chunk(names, pageRows) {
		nodes, err := s.StatsBelow(ctx, dir, step)
		if err != nil {
			return nil, "", err
		}
		i := slices.IndexFunc(nodes, func(n session.Node) bool {
			return n.Err == nil && zklock.Token(n.Stat.Czxid) == t
		})
		if i >= 0 {
			return s, step[i], nil
		}
	}
	return s, "", nil
}
