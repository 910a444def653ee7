package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// LockList is what Locks has found.
type LockList struct {
	Locks  []QueuePage // those in use, by path
	Looked int         // znodes that were looked at
	Hidden int         // those of them that may not be read: no lock there is in Locks
	Cut    bool        // the limits left something out
}

// SearchOption bounds what Locks reads.
type SearchOption struct{ set func(*search) }

// SearchZnodes has Locks look at n znodes at most; default 10,000. It must be more than 0.
func SearchZnodes(n int) SearchOption { return SearchOption{func(s *search) { s.znodes = n }} }

// SearchDepth has Locks look n levels below the root at most; default 32. 0 is the root alone.
func SearchDepth(n int) SearchOption { return SearchOption{func(s *search) { s.depth = n }} }

// SearchRows has Locks read n contenders of each lock, from the first on; default 1, which is a holder.
func SearchRows(n int) SearchOption { return SearchOption{func(s *search) { s.rows = n }} }

// Locks returns the locks at root and below it that are held or waited for. A znode is taken for a lock when it has
// children that are named as contenders are. ZooKeeper's own znodes and what is below a job's record are left out. So are,
// except root, those that may not be read or have more children than can be read. Each lock is as QueuePage shows it, at a
// time of its own.
//
// It costs a list for each znode, 16 at a time, and for each lock what QueuePage costs, and blocks for that, or as long as
// there is no connection and ctx lasts. It may be called concurrently.
//
// Errors: ErrPath, ErrOption; zk.ErrNoAuth when root itself may not be read, since an empty list would say that no lock is
// in use; otherwise as for Queue. With an error the list is what was found before.
func (c *Client) Locks(ctx context.Context, root string, opts ...SearchOption) (LockList, error) {
	c.need()
	needContext(ctx)
	s := search{c: c, root: root, znodes: 10_000, depth: 32, rows: 1}
	for _, o := range opts {
		if o.set != nil {
			o.set(&s)
		}
	}
	err := s.run(ctx)
	return s.found, failed("locks", root, err)
}

type search struct {
	c                   *Client
	root                string
	znodes, depth, rows int
	found               LockList
}

func (s *search) run(ctx context.Context) error {
	if err := session.CheckPath(s.root); err != nil {
		return err
	}
	if s.znodes < 1 || s.depth < 0 || s.rows < 0 {
		return fmt.Errorf("%w: search of %d znodes, %d levels down, %d rows each: needs a znode at least, and no number may be negative", ErrOption, s.znodes, s.depth, s.rows)
	}
	z, err := s.c.Session(ctx)
	if err == nil {
		err = z.Sync(ctx, s.root)
	}
	if err != nil {
		return err
	}
	locks, err := s.walk(ctx, z)
	if err != nil {
		return err
	}
	slices.Sort(locks)
	pages := make([]QueuePage, len(locks))
	err = each(locks, func(i int, dir string) error {
		var err error
		pages[i], err = s.c.page(ctx, dir, 0, s.rows)
		return unlessOne(err)
	})
	s.found.Locks = slices.DeleteFunc(pages, func(p QueuePage) bool { return p.Holding+p.Waiting == 0 }) // gone meanwhile
	return err
}

// walk lists the tree, level by level, and returns the directories that have contenders.
func (s *search) walk(ctx context.Context, z *session.Session) (locks []string, err error) {
	level := []string{s.root}
	for depth := 0; len(level) > 0; depth++ {
		room := max(0, s.znodes-s.found.Looked)
		if depth > s.depth {
			room = 0
		}
		if len(level) > room {
			s.found.Cut = true
			level = level[:room]
		}
		s.found.Looked += len(level)
		var mu sync.Mutex // guards the rest, and next
		var next []string
		err := each(level, func(_ int, dir string) error {
			names, _, err := z.List(ctx, dir)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, zk.ErrNoAuth) {
				if dir == s.root {
					return err
				}
				s.found.Hidden++
			}
			contenders := false
			for _, name := range names {
				if _, ok := recipe.Parse(name); ok {
					contenders = true
				} else if p := strings.TrimSuffix(dir, "/") + "/" + name; p != "/zookeeper" && !ofRecord(dir, name) {
					next = append(next, p)
				}
			}
			if contenders && dir != "/" {
				locks = append(locks, dir)
			}
			return unlessOne(err)
		})
		if err != nil {
			return nil, err
		}
		slices.Sort(next) // so that the limits leave out the same znodes each time
		level = next
	}
	return locks, nil
}

// unlessOne returns err, unless it only concerns one znode, which is left out: it is gone, or may not or can't be read.
func unlessOne(err error) error {
	if isAny(err, zk.ErrNoNode, zk.ErrNoAuth, ErrTooLarge, ErrPath) {
		return nil
	}
	return err
}

// each calls fn for all paths, 16 at a time, until one call fails, and returns its error when all calls have ended.
func each(paths []string, fn func(i int, path string) error) error {
	var all sync.WaitGroup
	failed := make(chan error, len(paths))
	running := make(chan struct{}, 16)
	for i := 0; i < len(paths) && len(failed) == 0; i++ {
		running <- struct{}{}
		all.Go(func() {
			if err := fn(i, paths[i]); err != nil {
				failed <- err
			}
			<-running
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}
