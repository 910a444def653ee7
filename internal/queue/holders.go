package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// InOrder returns the contenders among names, the children of dir that were listed together with stat, in order of arrival.
// It is for onlookers; a contender itself uses Decide. It reads Stats only if two contenders have one number, or the
// directory's counter is near its end: contenders gone by then are left out, those with unreadable Stats come first.
func InOrder(ctx context.Context, s *session.Session, dir string, names []string, stat zk.Stat) ([]string, error) {
	l := recipe.NewListing(names, stat)
	line, unknown := l.Line(nil)
	if len(unknown) > 0 {
		czxids, err := readCzxids(ctx, s, dir, unknown)
		if err != nil {
			return nil, err
		}
		line, _ = l.Line(czxids)
	}
	return line, nil
}

// First returns which of names, contenders in dir, was made first; "" when there are none. Unlike InOrder it reads the
// Stats of all, if there are several, so a made-up number has no effect. Those with unreadable Stats come last.
func First(ctx context.Context, s *session.Session, dir string, names []string) (string, error) {
	if len(names) == 1 {
		return names[0], nil
	}
	czxids, err := readCzxids(ctx, s, dir, names)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if _, known := czxids[name]; !known {
			czxids[name] = math.MaxInt64
		}
	}
	line, _ := recipe.Listing{Names: names, Counter: math.MaxInt32}.Line(czxids) // by the czxids alone
	return append(line, "")[0], nil
}

// czxidsFor returns the czxids of unknown, and of own, our contender. ErrNeighbour: the order depends on an unreadable one.
func (e *entry) czxidsFor(ctx context.Context, own string, unknown []string) (map[string]int64, error) {
	others := slices.DeleteFunc(slices.Clone(unknown), func(name string) bool { return name == own })
	czxids, err := readCzxids(ctx, e.t.s, e.q.Dir, others)
	if err != nil {
		return nil, err
	}
	czxids[own] = e.t.czxid
	for _, name := range unknown {
		if _, known := czxids[name]; !known {
			return nil, neighbourError{fmt.Errorf("queue: whether %s or %s came first can't be told, since the Stat of the second may not be read: %w", own,
				text.Foreign(name), zk.ErrNoAuth)}
		}
	}
	return czxids, nil
}

// readCzxids returns the czxids of names in dir: 0 for those that are gone, none for those that may not be read.
func readCzxids(ctx context.Context, s *session.Session, dir string, names []string) (map[string]int64, error) {
	nodes, err := s.StatsBelow(ctx, dir, names)
	if err != nil {
		return nil, err
	}
	czxids := map[string]int64{}
	for i, n := range nodes {
		switch {
		case n.Err == nil, errors.Is(n.Err, zk.ErrNoNode):
			czxids[names[i]] = n.Stat.Czxid
		case !errors.Is(n.Err, zk.ErrNoAuth):
			return nil, n.Err
		}
	}
	return czxids, nil
}

// Holders returns, for each contender of a line that InOrder has put in order, whether it holds; and a semaphore's size, 0
// if it is no semaphore or has none. Each contender is judged, as it judges itself, among those that may share a directory
// with it. Holders reads only a semaphore's size, and the Stats of Curator's readers under their own write lock.
func Holders(ctx context.Context, s *session.Session, dir string, line []string) (holds []bool, size int, err error) {
	if slices.ContainsFunc(line, func(name string) bool { n, _ := recipe.Parse(name); return n.Kind.Sized() }) {
		if size, err = shownSize(ctx, s, dir); err != nil {
			return nil, 0, err
		}
	}
	holds = recipe.Holding(line, size)
	writer, readers := recipe.Inside(line)
	if len(readers) == 0 {
		return holds, size, nil
	}
	names := []string{line[writer]}
	for _, i := range readers {
		names = append(names, line[i])
	}
	nodes, err := s.StatsBelow(ctx, dir, names)
	if err != nil {
		return nil, 0, err
	}
	for k, i := range readers {
		holds[i] = nodes[0].Err == nil && nodes[k+1].Err == nil && nodes[k+1].Stat.EphemeralOwner == nodes[0].Stat.EphemeralOwner
	}
	return holds, size, nil
}

// shownSize reads a semaphore's size for an onlooker; 0: it has none, or foreign data. zk.ErrNoNode: the directory is gone.
func shownSize(ctx context.Context, s *session.Session, dir string) (int, error) {
	parent, name := path.Split(dir)
	n, err := ReadChild(ctx, s, path.Clean(parent), name)
	if err != nil {
		return 0, err
	}
	d, _ := parseData(n.Data)
	return d.Size, nil
}
