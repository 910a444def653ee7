package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/fanout"
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
	Locks  []QueuePage // those in use, by path
	Looked int         // znodes that were listed, or that could not be
	// Hidden is how many of those znodes may not be read, or can't, since the answer is too long.
	// The locks there are not in Locks.
	Hidden int
	// Truncated says that Znodes or Depth of the Search left out znodes. Rows has no part in it:
	// Holding and Waiting of a page tell how long the whole line is.
	Truncated bool
}

// Locks returns the locks at root and below it that are held or waited for. A znode is taken for a
// lock if it has children that are named as contenders are. Each lock is as ReadQueue shows it, at
// a time of its own. If root does not exist, no lock is there, and the error is nil.
//
// These are left out:
//   - ZooKeeper's own znodes;
//   - the znodes of a job's runs: they are below PATH.done, beside the job's lock PATH. They are
//     known by their names, so locks below /any.done/every and /any.done/5f, or two other
//     hexadecimal digits, are left out too;
//   - znodes below root that may not, or can't, be read: Found.Hidden counts them.
//
// It costs a list for each znode, 16 at a time, and for each lock what ReadQueue costs. It blocks
// for that, or as long as there is no connection and ctx lasts. It may be called concurrently.
//
// Errors:
//   - zklock.ErrPath;
//   - zklock.ErrInvalid if a bound is negative;
//   - zk.ErrNoAuth if root itself may not be read, and zklock.ErrTooLarge if it can't;
//   - otherwise the errors of ReadQueue.
//
// With an error, Found is incomplete. It counts the znodes that were reached, and has the locks
// that were read: none unless all znodes had been listed.
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

// search is one call of Locks. It lists the tree to find the directories of locks, and then reads
// the line of each.
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
	// A leader that was deposed, and does not know it yet, would answer a Sync, and the reads after
	// it would be stale. Settle waits until a majority has confirmed the leader.
	if err := z.Settle(ctx, s.root); err != nil {
		return err
	}
	locks, err := s.walk(ctx, z)
	if err != nil {
		return err
	}
	slices.Sort(locks)
	return s.readLocks(ctx, z, locks)
}

// walk lists the tree, level by level, and returns the directories of locks in it.
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
	hidden bool     // it may not, or can't, be read
}

// readLevel reads the znodes of a level, and counts those that may not, or can't, be read.
func (s *search) readLevel(
	ctx context.Context, z *session.Session, level []string,
) ([]directory, error) {
	all := make([]directory, len(level))
	err := fanout.Each(level, func(i int, dir string) error {
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

// readDirectory lists dir. A directory that is gone, or hidden, has nothing in it.
func (s *search) readDirectory(
	ctx context.Context, z *session.Session, dir string,
) (directory, error) {
	names, _, err := z.List(ctx, dir)
	if err != nil {
		hidden, err := s.isHidden(dir, err)
		return directory{hidden: hidden}, err
	}
	var d directory
	mayBeLock := contender.CheckDir(dir) == nil
	for _, name := range names {
		if _, isContender := recipe.Parse(name); isContender {
			d.isLock = mayBeLock
			continue
		}
		child := strings.TrimSuffix(dir, "/") + "/" + name
		if child != "/zookeeper" && !contender.OfJobRecord(dir, name) {
			d.below = append(d.below, child)
		}
	}
	return d, nil
}

// readLocks reads the lines of these directories into s.found, and leaves out those that are empty
// by now. If it fails, s.found has the lines that were read before.
func (s *search) readLocks(ctx context.Context, z *session.Session, dirs []string) error {
	pages := make([]QueuePage, len(dirs))
	hidden := make([]bool, len(dirs))
	err := fanout.Each(dirs, func(i int, dir string) error {
		page, err := read(ctx, z, dir, 0, s.within.Rows)
		if err != nil {
			hidden[i], err = s.isHidden(dir, err)
			return err
		}
		pages[i] = page
		return nil
	})
	s.found.Locks = make([]QueuePage, 0, len(dirs))
	for i, page := range pages {
		if hidden[i] {
			s.found.Hidden++
		}
		if page.Holding+page.Waiting > 0 {
			s.found.Locks = append(s.found.Locks, page)
		}
	}
	return err
}

// isHidden reports whether err, the error of reading dir, says that dir may not, or can't, be read.
// It returns false if dir is gone: then there is nothing to see.
//
// It returns err itself if the search can't go on. That is so if err is not about dir alone, and
// also if dir is the root: an empty answer would say that no lock is in use.
func (s *search) isHidden(dir string, err error) (bool, error) {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return false, nil
	case dir == s.root:
		return false, err
	case failure.IsOne(err, zk.ErrNoAuth, zklock.ErrTooLarge, zklock.ErrPath):
		return true, nil
	}
	return false, err
}
