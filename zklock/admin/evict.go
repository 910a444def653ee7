package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/zklock"
)

// Evict removes the contender with token t from the line of path, whichever client owns it: mostly
// a holder that hangs. Its znode is deleted only if it still has that token. A holder that uses
// this library loses its hold a moment later (zklock.ErrNodeDeleted), but its work is not stopped:
// only the token and Hold.Multi protect against that.
//
// It returns nil if the contender was removed, and zk.ErrNoNode if no contender has that token.
// Other errors as for ReadQueue; after one that matches zklock.ErrUnknownOutcome it may have been
// removed. It costs a write, and at most half as much as Queue.
func Evict(ctx context.Context, c *zklock.Client, path string, t zklock.Token) error {
	for left := false; ; left = true {
		l, name, err := find(ctx, c, path, t)
		switch {
		case err != nil, name == "" && left:
		case name == "":
			err = fmt.Errorf("nobody in line has the token %d: %w", t, zk.ErrNoNode)
		default:
			if err = l.s.Delete(ctx, path+"/"+name, -1); errors.Is(err, zk.ErrNoNode) { // by full name, which is never used again
				continue
			}
		}
		return failed("evict", path, err)
	}
}

// find returns the line of dir, and the name of the contender with token t; "" if there is none.
func find(ctx context.Context, c *zklock.Client, dir string, t zklock.Token) (listed, string, error) {
	l, err := list(ctx, c, nil, dir)
	if err != nil {
		return l, "", err
	}
	names := l.names
	if t <= 0 { // the token that ReadQueue shows for a znode that may not be read
		names = nil
	}
	for step := range slices.Chunk(names, pageRows) {
		nodes, err := l.s.StatsBelow(ctx, dir, step)
		if err != nil {
			return l, "", err
		}
		for i, n := range nodes {
			if n.Err == nil && zklock.Token(n.Stat.Czxid) == t {
				return l, step[i], nil
			}
		}
	}
	return l, "", nil
}
