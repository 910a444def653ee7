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
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
)

// Search bounds what Locks reads. The zero value is the default.
type Search struct {
	Znodes int // how many znodes to list; 0 means 10,000
	Depth  int // how many levels below the root; 0 means 32
	Rows   int // how many contenders of each lock to read, from the first on; 0 means 1, a holder
}

// Found is what Locks has found.
type Found struct {
	Locks     []QueuePage // those in use, by path
	Looked    int         // znodes that were listed
	Hidden    int         // those of them that may not be read: no lock there is in Locks
	Truncated bool        // the search's bounds left something out
}

// Locks returns the locks at root and below it that are held or waited for. A znode is taken for a
// lock if it has children that are named as contenders are. Each lock is as ReadQueue shows it, at
// a time of its own.
//
// These are left out:
//   - ZooKeeper's own znodes;
//   - what is below a job's record;
//   - znodes that may not be read or have more children than can be read, except root.
//
// It costs a list for each znode, 16 at a time, and for each lock what ReadQueue costs. It blocks
// for that, or as long as there is no connection and ctx lasts. It may be called concurrently.
//
// Errors, with which Found is what was found before:
//   - zklock.ErrPath;
//   - zklock.ErrInvalid if a bound is negative;
//   - zk.ErrNoAuth or zklock.ErrTooLarge if root itself may not or can't be read;
//   - otherwise the errors of ReadQueue.
func Locks(ctx context.Context, c *zklock.Client, root string, within Search) (Found, error) {
	s := search{
		c:    c,
		root: root,
		within: Search{
			Znodes: cmp.Or(within.Znodes, 10_000),
			Depth:  cmp.Or(within.Depth, 32),
			Rows:   cmp.Or(within.Rows, 1),
		},
	}
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
	if err != nil {
		return err
	}
	// A leader that has been deposed, and does not know it, would answer a sync.
	if err := z.Settle(ctx, s.root); err != nil {
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
		pages[i], err = read(ctx, z, dir, 0, s.within.Rows)
		return exceptUnreadable(err)
	})
	s.found.Locks = slices.DeleteFunc(pages, func(l QueuePage) bool {
		return l.Holding+l.Waiting == 0 // gone meanwhile, or not read
	})
	return err
}

// walk lists the tree, level by level, and returns the locks in it.
func (s *search) walk(ctx context.Context, z *session.Session) ([]string, error) {
	var locks []string
	level := []string{s.root}
	for depth := 0; len(level) > 0; depth++ {
		level = s.bounded(level, depth)
		directories, err := s.readLevel(ctx, z, level)
		if err != nil {
			return nil, err
		}
		var next []string
		for i, d := range directories {
			if d.isLock {
				locks = append(locks, level[i])
			}
			next = append(next, d.below...)
		}
		slices.Sort(next) // so that the bounds leave out the same znodes each time
		level = next
	}
	return locks, nil
}

// bounded returns as many znodes of a level as the search's bounds allow, and counts them.
func (s *search) bounded(level []string, depth int) []string {
	room := max(0, s.within.Znodes-s.found.Looked)
	if depth > s.within.Depth {
		room = 0
	}
	if len(level) > room {
		s.found.Truncated = true
		level = level[:room]
	}
	s.found.Looked += len(level)
	return level
}

// directory is a znode as walk has read it.
type directory struct {
	isLock bool     // it has contenders
	below  []string // the paths of its other children, which may be locks
	hidden bool     // it may not be read
}

// readLevel reads the znodes of a level, and counts those that may not be read.
func (s *search) readLevel(
	ctx context.Context, z *session.Session, level []string,
) ([]directory, error) {
	all := make([]directory, len(level))
	err := each(level, func(i int, dir string) error {
		var err error
		all[i], err = s.readDirectory(ctx, z, dir)
		return err
	})
	for _, d := range all {
		if d.hidden {
			s.found.Hidden++
		}
	}
	return all, err
}

// readDirectory lists dir. Except root, it may be unreadable: then there is nothing in it.
func (s *search) readDirectory(
	ctx context.Context, z *session.Session, dir string,
) (directory, error) {
	names, _, err := z.List(ctx, dir)
	if dir == s.root && failure.IsOne(err, zk.ErrNoAuth, zklock.ErrTooLarge) {
		return directory{}, err // an empty list would say that no lock is in use
	}
	if errors.Is(err, zk.ErrNoAuth) {
		return directory{hidden: true}, nil
	}
	if err != nil {
		return directory{}, exceptUnreadable(err)
	}
	var d directory
	for _, name := range names {
		if _, ok := recipe.Parse(name); ok {
			d.isLock = contender.CheckDir(dir) == nil
			continue
		}
		child := strings.TrimSuffix(dir, "/") + "/" + name
		if child != "/zookeeper" && !contender.OfRecord(dir, name) {
			d.below = append(d.below, child)
		}
	}
	return d, nil
}

// exceptUnreadable returns err, or nil if err concerns only one znode, which is left out: it is
// gone, or it may not or can't be read.
func exceptUnreadable(err error) error {
	if failure.IsOne(err, zk.ErrNoNode, zk.ErrNoAuth, zklock.ErrTooLarge, zklock.ErrPath) {
		return nil
	}
	return err
}

// each calls fn for all paths, 16 at a time, until one call fails. When all calls have ended, it
// returns the first error.
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
