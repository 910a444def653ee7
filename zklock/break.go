package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"
)

// Break removes the contender with token t from the queue of path, whichever client owns it: mostly a holder that hangs.
// Its znode is deleted only if it still has that token. A holder that uses this library loses its hold at once
// (ErrNodeDeleted), but its work is not stopped: only the token and Hold.Multi protect against that.
//
// Nil: it was removed. zk.ErrNoNode: no contender has that token. Other errors as for Queue; after one that matches
// ErrUnknownOutcome it may have been removed. It costs at most half as much as Queue.
func (c *Client) Break(ctx context.Context, path string, t Token) error {
	c.need()
	needContext(ctx)
	for left := false; ; left = true {
		l, name, err := c.find(ctx, path, t)
		switch {
		case err != nil, name == "" && left:
		case name == "":
			err = fmt.Errorf("nobody in line has the token %d: %w", t, zk.ErrNoNode)
		default:
			if err = l.s.Delete(ctx, path+"/"+name, -1); errors.Is(err, zk.ErrNoNode) { // by full name, which is never used again
				continue
			}
		}
		return failed("break", path, err)
	}
}

// breakSteps is how many contenders Break reads before it looks for t among them.
const breakSteps = 1000

// find returns the line of dir, and the name of the contender with token t; "" if there is none.
func (c *Client) find(ctx context.Context, dir string, t Token) (lineOf, string, error) {
	l, err := c.readLine(ctx, dir)
	if err != nil {
		return l, "", err
	}
	names := l.names
	if t <= 0 { // the token that Queue shows for a znode that may not be read
		names = nil
	}
	for step := range slices.Chunk(names, breakSteps) {
		nodes, err := l.s.StatsBelow(ctx, dir, step)
		if err != nil {
			return l, "", err
		}
		for i, n := range nodes {
			if n.Err == nil && Token(n.Stat.Czxid) == t {
				return l, step[i], nil
			}
		}
	}
	return l, "", nil
}
