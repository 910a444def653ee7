package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/internal/fanout"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
)

func (a *app) pruneCommand() *cobra.Command {
	p := pruner{}
	var yes bool
	cmd := &cobra.Command{
		Use:     "prune [flags] PATH",
		GroupID: groupLook,
		Short:   "Remove the empty directories of unused locks",
		Long: `List the empty lock directories below PATH, and with --yes remove them. Each key that was ever locked leaves a znode, its
lock's directory, unless it was locked with --container; the ensemble keeps all of them in memory.

PATH must contain only locks: a znode below it counts as a lock's directory when it is persistent, has neither children nor
data, has had children before, and is older than --older-than. PATH itself stays, and so does a semaphore's directory, which
has its size as data.

Directories in use stay: the ensemble refuses to delete a znode that has children, and a lock whose directory is deleted
before it has queued there creates it again.`,
		Example: `  zklock prune /locks/workflow-approve                # list only
  zklock prune --yes /locks/workflow-approve
  zklock prune --yes --older-than 24h --depth 3 /locks`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			p.root = args[0]
			if err := p.check(); err != nil {
				return err
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				return p.run(ctx, a, c, yes)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&yes, "yes", "y", false, "remove them; without it they are only listed")
	f.DurationVar(&p.age, "older-than", time.Hour, "leave a directory that was made less than "+
		"this long ago, by the ensemble's clock and ours")
	f.IntVar(&p.depth, "depth", 1, "look this many levels below PATH")
	return cmd
}

// check refuses invalid flags and roots.
func (p *pruner) check() error {
	switch {
	case p.root == "/":
		return usagef("prune /: not all that is empty there is a lock's; " +
			"name a path that holds only locks")
	case p.age < 0:
		return usagef("--older-than %v: must not be less than 0", p.age)
	case p.depth < 1:
		return usagef("--depth %d: must be more than 0", p.depth)
	}
	return session.CheckPath(p.root)
}

// pruner finds and removes the empty lock directories below root.
type pruner struct {
	root  string
	age   time.Duration
	depth int

	// patience bounds the wait for each answer of the ensemble. All of them together have no
	// bound, because the number of requests is not known in advance.
	patience time.Duration

	// What find has found below root.
	empty  []emptyDir
	seen   int // znodes
	hidden int // of these, the ones that may not, or can't, be read

	// What remove has done.
	removed int
	refused int // deletions that the ensemble refused
}

// emptyDir is the directory of an unused lock.
type emptyDir struct {
	path    string
	version int32 // of its data, so that a write after the search stops the deletion
}

// run lists the empty directories, or removes them if yes is true.
func (p *pruner) run(ctx context.Context, a *app, c *zklock.Client, yes bool) error {
	p.patience = a.conn.patience
	s, err := p.search(ctx, a, c)
	if err != nil {
		return err
	}
	if p.hidden > 0 && !a.quiet {
		notice(a.err, "%d znodes below %s %s: they stay, and what is below them",
			p.hidden, p.root, unread)
	}
	if !yes {
		return p.list(a)
	}
	err = p.remove(ctx, s)
	if !a.quiet {
		_, failed := fmt.Fprintf(a.out, "removed %d of %d znodes below %s\n",
			p.removed, p.seen, clean(p.root))
		err = cmp.Or(err, failed)
	}
	if err == nil && p.refused > 0 {
		return fmt.Errorf("%d empty lock directories below %s: %w",
			p.refused, p.root, zk.ErrNoAuth)
	}
	return err
}

// search finds the empty directories, and returns the client's session. If root does not exist,
// search tells the user so and finds none.
func (p *pruner) search(
	ctx context.Context, a *app, c *zklock.Client,
) (*session.Session, error) {
	bounded, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	s, err := unsealed.Session(bounded, c)
	if err != nil {
		return nil, err
	}
	err = s.Sync(bounded, p.root)
	if err == nil {
		err = p.find(ctx, s, time.Now())
	}
	if errors.Is(err, zk.ErrNoNode) {
		err = a.noteMissing(bounded, c, p.root)
	}
	return s, err
}

// list prints the empty directories.
func (p *pruner) list(a *app) error {
	for _, dir := range p.empty {
		if _, err := fmt.Fprintln(a.out, clean(dir.path)); err != nil {
			return err
		}
	}
	if !a.quiet {
		notice(a.err, "%d of %d znodes below %s are empty lock directories; --yes removes them",
			len(p.empty), p.seen, p.root)
	}
	return nil
}

// find walks the tree below root, level by level, and sorts the empty directories by their paths.
func (p *pruner) find(ctx context.Context, s *session.Session, now time.Time) error {
	level := []string{p.root}
	for depth := 0; depth <= p.depth && len(level) > 0; depth++ {
		found, err := p.readLevel(ctx, s, level)
		if err != nil {
			return err
		}
		level = p.judge(found, now)
	}
	slices.SortFunc(p.empty, func(a, b emptyDir) int { return strings.Compare(a.path, b.path) })
	return nil
}

// directory is a znode as find has read it.
type directory struct {
	path  string
	state directoryState
	names []string // of its children
	stat  zk.Stat
}

// directoryState says whether a znode could be read.
type directoryState int

const (
	dirRead   directoryState = iota
	dirGone                  // deleted since its parent was read
	dirHidden                // it may not, or can't, be read
)

// readLevel reads the znodes of one level.
func (p *pruner) readLevel(
	ctx context.Context, s *session.Session, level []string,
) ([]directory, error) {
	found := make([]directory, len(level))
	err := fanout.Each(level, func(i int, dir string) error {
		var err error
		found[i], err = p.readDirectory(ctx, s, dir)
		return err
	})
	return found, err
}

// readDirectory reads one znode. It returns an error only if the search can't go on: root can't be
// read, or the error is not about this znode alone.
func (p *pruner) readDirectory(
	ctx context.Context, s *session.Session, dir string,
) (directory, error) {
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	names, stat, err := s.List(ctx, dir)
	d := directory{path: dir, names: names, stat: stat}
	switch {
	case err == nil:
		d.state = dirRead
	case dir == p.root:
		return directory{}, err
	case errors.Is(err, zk.ErrNoNode):
		d.state = dirGone
	case failure.IsOne(err, zk.ErrNoAuth, session.ErrTooLarge, session.ErrPath):
		d.state = dirHidden
	default:
		return directory{}, err
	}
	return d, nil
}

// judge counts the znodes of one level, notes those that are empty lock directories, and returns
// the paths of the next level.
func (p *pruner) judge(level []directory, now time.Time) (next []string) {
	for _, d := range level {
		if d.state == dirGone {
			continue
		}
		next = append(next, mayBeDirectories(d)...)
		if d.path == p.root {
			continue // it stays
		}
		p.seen++
		switch {
		case d.state == dirHidden:
			p.hidden++
		case p.unused(d.stat, now):
			p.empty = append(p.empty, emptyDir{d.path, d.stat.Version})
		}
	}
	return next
}

// mayBeDirectories returns the paths of the children of d that may be locks' directories: all
// except contenders and ZooKeeper's own znodes.
func mayBeDirectories(d directory) []string {
	var paths []string
	for _, name := range d.names {
		path := strings.TrimSuffix(d.path, "/") + "/" + name
		if _, isContender := recipe.Parse(name); !isContender && path != "/zookeeper" {
			paths = append(paths, path)
		}
	}
	return paths
}

// unused reports whether a znode is an empty lock directory that is old enough.
//
// These stay:
//   - A znode with data. That is a semaphore's size, or part of the record of a job's runs, which
//     must not be forgotten.
//   - Containers and znodes with a time to live, which the ensemble removes by itself. Like
//     ephemeral znodes, they have an owner that is not zero.
//   - A znode that has never had children. It was never locked, and may be no lock's.
func (p *pruner) unused(stat zk.Stat, now time.Time) bool {
	isEmpty := stat.NumChildren == 0 && stat.DataLength == 0
	hadChildren := stat.Cversion != 0
	age := now.Sub(time.UnixMilli(stat.Ctime))
	return isEmpty && hadChildren && stat.EphemeralOwner == 0 && age >= p.age
}

// remove deletes the directories that find has found, except those used or written since. It counts
// those that it has removed, and those whose deletion was refused.
func (p *pruner) remove(ctx context.Context, s *session.Session) error {
	paths := make([]string, len(p.empty))
	for i, dir := range p.empty {
		paths[i] = dir.path
	}
	deletions := make([]deletion, len(paths))
	err := fanout.Each(paths, func(i int, dir string) error {
		ctx, cancel := context.WithTimeout(ctx, p.patience)
		defer cancel()
		var err error
		deletions[i], err = deletionOf(s.Delete(ctx, dir, p.empty[i].version))
		return err
	})
	for _, d := range deletions {
		switch d {
		case dirRemoved:
			p.removed++
		case dirRefused:
			p.refused++
		}
	}
	return err
}

// deletion is what became of the deletion of a directory.
type deletion int

const (
	dirLeft    deletion = iota // not tried, or used, written or removed by another client since
	dirRemoved                 // removed by us
	dirRefused                 // refused by an access list
)

// deletionOf returns what became of a deletion with the error err. It returns err itself if that is
// not about the one directory.
func deletionOf(err error) (deletion, error) {
	switch {
	case err == nil:
		return dirRemoved, nil
	case errors.Is(err, zk.ErrNoAuth):
		return dirRefused, nil
	case failure.IsOne(err, zk.ErrNoNode, zk.ErrNotEmpty, zk.ErrBadVersion):
		return dirLeft, nil
	}
	return dirLeft, err
}
