package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
)

// Search bounds what Locks reads. The zero value is the default.
type Search struct {
	Znodes int // how many to look at; 0: 10,000
	Depth  int // how many levels below the root; 0: 32
	Rows   int // how many contenders of each lock to read, from the first on; 0: one, which is a holder
}

// Found is what Locks has found.
type Found struct {
	Locks     []QueuePage // those in use, by path
	Looked    int         // znodes that were looked at
	Hidden    int         // those of them that may not be read: no lock there is in Locks
	Truncated bool        // the search's bounds left something out
}

// Locks returns the locks at root and below it that are held or waited for. A znode is taken for a
// lock when it has children that are named as contenders are. ZooKeeper's own znodes and what is
// below a job's record are left out. So are, except root, those that may not be read or have more
// children than can be read. Each lock is as ReadQueue shows it, at a time of its own.
//
// It costs a list for each znode, 16 at a time, and for each lock what ReadQueue costs, and blocks
// for that, or as long as there is no connection and ctx lasts. It may be called concurrently.
//
// Errors: zklock.ErrPath; zklock.ErrInvalid when a bound is negative; zk.ErrNoAuth when root itself
// may not be read, since an empty list would say that no lock is in use; otherwise as for
// ReadQueue. With an error Found is what was found before.
func Locks(ctx context.Context, c *zklock.Client, root string, within Search) (Found, error) {
	s := search{c: c, root: root, within: Search{cmp.Or(within.Znodes, 10_000), cmp.Or(within.Depth, 32), cmp.Or(within.Rows, 1)}}
	err := s.run(ctx)
	return s.found, failed("locks", root, err)
}

type search struct {
	c      *zklock.Client
	root   string
	within Search
	found  Found
}

func (s *search) run(ctx context.Context) error {
	if err := session.CheckPath(s.root); err != nil {
		return err
	}
	if min(s.within.Znodes, s.within.Depth, s.within.Rows) < 0 {
		return fmt.Errorf("%w: search %+v: no bound may be negative", zklock.ErrInvalid, s.within)
	}
	z, err := unsealed.Session(ctx, s.c)
	if err == nil {
		err = z.Settle(ctx, s.root) // a leader that has been deposed, and does not know it, would answer a sync
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
		pages[i], err = read(ctx, s.c, z, dir, 0, s.within.Rows)
		return unlessOne(err)
	})
	s.found.Locks = slices.DeleteFunc(pages, func(l QueuePage) bool { return l.Holding+l.Waiting == 0 }) // gone meanwhile
	return err
}

// walk lists the tree, level by level, and returns the directories that have contenders.
func (s *search) walk(ctx context.Context, z *session.Session) (locks []string, err error) {
	level := []string{s.root}
	for depth := 0; len(level) > 0; depth++ {
		room := max(0, s.within.Znodes-s.found.Looked)
		if depth > s.within.Depth {
			room = 0
		}
		if len(level) > room {
			s.found.Truncated = true
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
				} else if p := strings.TrimSuffix(dir, "/") + "/" + name; p != "/zookeeper" && !contender.OfRecord(dir, name) {
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

// unlessOne returns err, unless it only concerns one znode, which is left out: it is gone, or may
// not or can't be read.
func unlessOne(err error) error {
	if slices.ContainsFunc([]error{zk.ErrNoNode, zk.ErrNoAuth, zklock.ErrTooLarge, zklock.ErrPath}, func(one error) bool { return errors.Is(err, one) }) {
		return nil
	}
	return err
}

// each calls fn for all paths, 16 at a time, until one call fails, and returns its error when all
// calls have ended.
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
