package zklock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Contender is one who holds a lock or waits for it, as its znode shows it.
type Contender struct {
	Node    string    // its znode
	Kind    string    // "mutex", "read lock", "write lock", "semaphore"
	Holds   bool      // it holds; else it waits
	Permits int       // of a semaphore's contender, else 0
	Token   Token     // its fencing token, should it come to hold or hold already
	Session int64     // the ZooKeeper session that owns it
	Since   time.Time // when it entered the line: the ensemble's clock
	Owner   string    // WithOwner; for other clients the text that they put there
	Host    string
	PID     int
	Data    []byte // WithData; for other clients all that they put there
}

// Queue returns who holds the lock at path and who waits for it, in order of arrival: whichever kind of lock it is, and
// other clients' contenders too. A path that does not exist has nobody in line. What it returns was so at some time
// during the call. It costs a sync, a list and two reads for each contender, 128 to a round trip, and blocks
// for those, or as long as there is no connection and ctx lasts. Contenders whose znodes may not be read show what
// their names tell and, up to ZooKeeper 3.8.3, their token and session. Of a semaphore, those count as holders for whom its present size has room: after a Resize to fewer
// permits the latest of the holders show as waiting until they are done.
func (c *Client) Queue(ctx context.Context, path string) ([]Contender, error) {
	line, err := c.queue(ctx, path)
	if err != nil {
		return nil, &lockError{"queue", path, err}
	}
	return line, nil
}

func (c *Client) queue(ctx context.Context, dir string) ([]Contender, error) {
	if err := checkLockPath(dir); err != nil {
		return nil, err
	}
	s, err := c.Session(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Sync(ctx, dir); err != nil {
		return nil, err
	}
	children, stat, err := s.List(ctx, dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := recipe.InOrder(ctx, s, dir, children, stat)
	if err != nil {
		return nil, err
	}
	holds, err := recipe.Holders(ctx, s, dir, names)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil // the directory is gone since the list
	}
	if err != nil {
		return nil, err
	}
	nodes, err := s.ReadBelow(ctx, dir, names, func(zk.Stat) bool { return true })
	if err != nil {
		return nil, err
	}
	line := make([]Contender, 0, len(names))
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			continue // gone since the list
		}
		line = append(line, newContender(dir+"/"+names[i], n, holds[names[i]]))
	}
	return line, nil
}

func newContender(node string, n session.Node, holds bool) Contender {
	name, _ := recipe.Parse(path.Base(node))
	k := Contender{Node: node, Kind: name.Kind.String(), Holds: holds, Permits: name.Permits, Token: Token(n.Stat.Czxid),
		Session: n.Stat.EphemeralOwner}
	if n.Stat.Czxid != 0 {
		k.Since = time.UnixMilli(n.Stat.Ctime)
	}
	if n.Err != nil {
		return k
	}
	var id identity
	if json.Unmarshal(n.Data, &id) == nil && id.Host != "" {
		k.Owner, k.Host, k.PID, k.Data = id.Owner, id.Host, id.PID, id.Data
	} else {
		k.Owner, k.Data = describe(n.Data), n.Data
	}
	return k
}

// Break removes the contender with token t from the line of path, whoever it is: a holder that hangs, mostly. It is an
// administrator's tool. Its znode is deleted if it is still that one; a holder of ours hears of it at once
// (ErrNodeDeleted), but what it has under way is not stopped by that: only the token and Hold.Multi are.
//
// Nil: it was removed. ErrNotHeld: there is no such contender. Otherwise as for Queue; after an error that matches
// ErrUnknownOutcome it may have been removed.
func (c *Client) Break(ctx context.Context, path string, t Token) error {
	line, err := c.queue(ctx, path)
	if err != nil {
		return &lockError{"break", path, err}
	}
	for _, k := range line {
		if k.Token != t || t <= 0 { // 0 is what one whose znode may not be read has
			continue
		}
		s, err := c.Session(ctx)
		if err == nil {
			err = s.Delete(ctx, k.Node, -1) // by full name, which is never used again
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return &lockError{"break", path, err}
		}
		return nil
	}
	return &lockError{"break", path, fmt.Errorf("%w: nobody in line has the token %d", ErrNotHeld, t)}
}
