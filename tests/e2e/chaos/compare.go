package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// compareBound is how long the servers may take to agree on a tree in which nothing moves any more.
const compareBound = 15 * time.Second

// compare returns the znodes of a round on which the servers don't agree, even some time after the
// last request. A server that has lost agreement shows a lock's znode whose session ended long ago,
// or does not show the znode of a hold: a known fault of ZooKeeper (ZOOKEEPER-4541), against which
// a client can do nothing.
func (r *Run) compare(o Orders) []string {
	if len(r.conf.Ensemble.Addrs) < 2 {
		return nil
	}
	var differ []string
	for end := time.Now().Add(compareBound); time.Now().Before(end); time.Sleep(
		200 * time.Millisecond) {
		trees := make([]map[string]int64, len(r.conf.Ensemble.Addrs))
		for i, addr := range r.conf.Ensemble.Addrs {
			var err error
			if trees[i], err = r.tree(addr, o.Root); err != nil {
				return nil // a server that does not answer can't be compared; other checks find it
			}
		}
		if differ = r.differences(trees); len(differ) == 0 {
			return nil
		}
	}
	return differ
}

func (r *Run) differences(trees []map[string]int64) (differ []string) {
	for i, tree := range trees {
		for j, other := range trees {
			for path, czxid := range tree {
				if czxid != other[path] {
					here, there := r.conf.Ensemble.Addrs[i], r.conf.Ensemble.Addrs[j]
					differ = append(differ, fmt.Sprintf(
						"%s was made by %#x on server %s, and by %#x on server %s (0: it is not there)",
						path, czxid, here, other[path], there))
				}
			}
		}
	}
	return differ[:min(len(differ), 10)]
}

// tree returns the znodes at and below root as one server shows them, with the zxid that made each.
func (r *Run) tree(addr, root string) (tree map[string]int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), compareBound)
	defer cancel()
	s, err := session.Open(ctx, addr,
		session.Config{Timeout: 20 * r.conf.Ensemble.Tick, TickTime: r.conf.Ensemble.Tick})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Sync(ctx, root); err != nil {
		return nil, err
	}
	tree = map[string]int64{}
	return tree, collect(ctx, s, root, tree)
}

func collect(ctx context.Context, s *session.Session, path string, tree map[string]int64) error {
	names, stat, err := s.List(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	tree[path] = stat.Czxid
	for _, n := range names {
		if err := collect(ctx, s, path+"/"+n, tree); err != nil {
			return err
		}
	}
	return nil
}
