package recipe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// InOrder returns the contenders among names, the children of dir that were listed together with stat, in order of
// arrival. It is for one who looks on; who stands in line himself decides by Decide. It reads nothing, unless two have
// one number, or the directory's counter is near its end: then their Stats. What is gone meanwhile is left out. Those
// whose Stats may not be read come first.
func InOrder(ctx context.Context, s *session.Session, dir string, names []string, stat zk.Stat) ([]string, error) {
	l := NewListing(names, stat)
	line, unknown := l.Line(nil)
	if len(unknown) == 0 {
		return line, nil
	}
	czxids := map[string]int64{}
	if err := readCzxids(ctx, s, dir, unknown, czxids); err != nil {
		return nil, err
	}
	line, _ = l.Line(czxids)
	return line, nil
}

// First returns the one of names, contenders in dir, that was made first; "" when there is none. Unlike InOrder it reads
// the Stats of all, if there are several, and so is not taken in by one who puts himself before the others by a number
// of his own making. Those whose Stats may not be read come last.
func First(ctx context.Context, s *session.Session, dir string, names []string) (string, error) {
	if len(names) == 1 {
		return names[0], nil
	}
	czxids := map[string]int64{}
	if err := readCzxids(ctx, s, dir, names, czxids); err != nil {
		return "", err
	}
	var first rank
	for _, name := range names {
		czxid, known := czxids[name]
		if known && czxid == 0 {
			continue // gone since the list
		}
		if !known {
			czxid = math.MaxInt64
		}
		n, _ := Parse(name)
		if r := (rank{czxid, int64(n.Number), name}); first.name == "" || r.compare(first) < 0 {
			first = r
		}
	}
	return first.name, nil
}

// czxidsFor reads what a contender's decision depends on. Without it nobody can tell who came first.
func (t *Ticket) czxidsFor(ctx context.Context, own string, unknown []string) (map[string]int64, error) {
	czxids := map[string]int64{own: t.czxid}
	if err := readCzxids(ctx, t.s, t.q.Dir, unknown, czxids); err != nil {
		return nil, err
	}
	for _, name := range unknown {
		if _, known := czxids[name]; !known {
			return nil, fmt.Errorf("recipe: who came first, %s or %s: its Stat has to be read: %w", own, text.Foreign(name), zk.ErrNoAuth)
		}
	}
	return czxids, nil
}

// readCzxids enters the czxids of those of names that are not in czxids yet; 0 for those that are gone, and none for
// those that may not be read.
func readCzxids(ctx context.Context, s *session.Session, dir string, names []string, czxids map[string]int64) error {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, known := czxids[name]; return known })
	nodes, err := s.StatsBelow(ctx, dir, names)
	if err != nil {
		return err
	}
	for i, n := range nodes {
		switch {
		case n.Err == nil, errors.Is(n.Err, zk.ErrNoNode):
			czxids[names[i]] = n.Stat.Czxid
		case !errors.Is(n.Err, zk.ErrNoAuth):
			return n.Err
		}
	}
	return nil
}

// Holders tells which of the contenders in line, which InOrder has put in order, hold. For a semaphore it reads the size.
func Holders(ctx context.Context, s *session.Session, dir string, line []string) (map[string]bool, error) {
	holds := map[string]bool{}
	for i, name := range line {
		n, _ := Parse(name)
		if n.Kind == Permits {
			state, _, err := Queue{Dir: dir}.state(ctx, s)
			if err != nil {
				return nil, err
			}
			sum := 0
			for _, name := range line {
				n, _ := Parse(name)
				sum += n.Permits
				holds[name] = sum <= state.Size
			}
			return holds, nil
		}
		holds[name] = true
		for _, other := range line[:i] {
			o, _ := Parse(other)
			if !n.Kind.shares(o.Kind) || !n.Kind.blocks(o.Kind) {
				continue
			}
			under := false
			if o.Number == n.Number && n.Kind == Read && n.Czxid == 0 {
				var err error
				if under, err = sameSession(ctx, s, dir, other, name); err != nil {
					return nil, err
				}
			}
			if !under {
				holds[name] = false
				break
			}
		}
	}
	return holds, nil
}

// sameSession reports whether two contenders with one number are one session's: Curator's reader under its own write
// lock has that one's number, and holds with it.
func sameSession(ctx context.Context, s *session.Session, dir, a, b string) (bool, error) {
	nodes, err := s.StatsBelow(ctx, dir, []string{a, b})
	if err != nil {
		return false, err
	}
	for _, n := range nodes {
		if n.Err != nil && !errors.Is(n.Err, zk.ErrNoNode) {
			return false, n.Err
		}
	}
	return nodes[0].Stat.EphemeralOwner == nodes[1].Stat.EphemeralOwner, nil
}

// Ahead reads a line in order: how many before own stand in its way, and the first of them; own itself when there is
// none. False: own is not in it.
func Ahead(line []string, own string) (ahead int, first string, ok bool) {
	me, _ := Parse(own)
	first = own
	for _, name := range line {
		if name == own {
			return ahead, first, true
		}
		if n, _ := Parse(name); me.Kind.shares(n.Kind) && me.Kind.blocks(n.Kind) {
			if ahead++; ahead == 1 {
				first = name
			}
		}
	}
	return 0, "", false
}
