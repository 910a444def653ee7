package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/internal/session"
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

	mu      sync.Mutex // guards the fields below
	empty   []emptyDir
	seen    int // znodes below root
	hidden  int // of these, the ones that may not be read
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
		notice(a.err, "%d znodes below %s may not be read with these credentials: "+
			"they stay, and what is below them", p.hidden, p.root)
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
		next, err := p.visit(ctx, s, level, now)
		if err != nil {
			return err
		}
		level = next
	}
	slices.SortFunc(p.empty, func(a, b emptyDir) int { return strings.Compare(a.path, b.path) })
	return nil
}

// visit reads the directories of one level, notes the empty ones, and returns the directories of
// the next level. Only an error of root itself, or one that is not about a single znode, ends it.
func (p *pruner) visit(
	ctx context.Context, s *session.Session, dirs []string, now time.Time,
) ([]string, error) {
	var next []string // guarded by p.mu
	err := each(dirs, func(_ int, dir string) error {
		bounded, cancel := context.WithTimeout(ctx, p.patience)
		defer cancel()
		names, stat, err := s.List(bounded, dir)
		if dir == p.root && err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if errors.Is(err, zk.ErrNoAuth) {
			p.seen++
			p.hidden++
			return nil
		}
		if err != nil {
			return readable(err)
		}
		if dir != p.root {
			p.noteLocked(dir, stat, now)
		}
		next = append(next, directories(dir, names)...)
		return nil
	})
	return next, err
}

// noteLocked counts a znode below root, and notes it if it is an empty directory.
func (p *pruner) noteLocked(dir string, stat zk.Stat, now time.Time) {
	p.seen++
	if p.unused(stat, now) {
		p.empty = append(p.empty, emptyDir{dir, stat.Version})
	}
}

// directories returns the paths of the children of dir that may be locks' directories: all except
// contenders and ZooKeeper's own znodes.
func directories(dir string, names []string) []string {
	var paths []string
	for _, name := range names {
		path := join(dir, name)
		if _, isContender := recipe.Parse(name); !isContender && path != "/zookeeper" {
			paths = append(paths, path)
		}
	}
	return paths
}

// unused reports whether a znode is an empty lock directory that is old enough. Containers and
// znodes with a time to live do not count, since the ensemble removes those by itself. Like
// ephemeral znodes, they have an owner that is not zero.
func (p *pruner) unused(stat zk.Stat, now time.Time) bool {
	isEmpty := stat.NumChildren == 0 && stat.DataLength == 0
	hadChildren := stat.Cversion != 0
	age := now.Sub(time.UnixMilli(stat.Ctime))
	return isEmpty && hadChildren && stat.EphemeralOwner == 0 && age >= p.age
}

// remove deletes the directories that find has found, except those used or written since.
func (p *pruner) remove(ctx context.Context, s *session.Session) error {
	paths := make([]string, len(p.empty))
	for i, dir := range p.empty {
		paths[i] = dir.path
	}
	return each(paths, func(i int, dir string) error {
		bounded, cancel := context.WithTimeout(ctx, p.patience)
		defer cancel()
		err := s.Delete(bounded, dir, p.empty[i].version)
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case err == nil:
			p.removed++
		case errors.Is(err, zk.ErrNoAuth):
			p.refused++
		case errors.Is(err, zk.ErrNoNode),
			errors.Is(err, zk.ErrNotEmpty),
			errors.Is(err, zk.ErrBadVersion):
			// It was used or written since, or another client has removed it.
		default:
			return err
		}
		return nil
	})
}
