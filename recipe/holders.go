package recipe

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Holders tells which of the contenders in line, which Sort has put in order, hold. For a semaphore it reads the size.
func Holders(ctx context.Context, s *session.Session, dir string, line []string) (map[string]bool, error) {
	holds := map[string]bool{}
	for _, name := range line {
		n, _ := Parse(name)
		if n.Kind == Permits {
			state, _, err := Queue{Dir: dir}.state(ctx, s)
			if err != nil {
				return nil, err
			}
			for _, name := range line {
				holds[name] = DecidePermits(line, name, state.Size).Holds
			}
			return holds, nil
		}
		v := Decide(line, name, nil)
		if len(v.Ties) > 0 {
			earlier, err := ties(ctx, s, dir, name, v.Ties)
			if err != nil {
				return nil, err
			}
			v = Decide(line, name, earlier)
		}
		holds[name] = v.Holds()
	}
	return holds, nil
}

// ties tells which of the contenders with name's number were made before it and stand in its way. One that is gone does
// not, nor one of the same session: Curator's reader under its own write lock has that one's number, and holds with it.
func ties(ctx context.Context, s *session.Session, dir, name string, others []string) (map[string]bool, error) {
	own, err := s.Exists(ctx, dir+"/"+name)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	earlier := map[string]bool{}
	for _, other := range others {
		stat, err := s.Exists(ctx, dir+"/"+other)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		earlier[other] = err == nil && stat.Czxid < own.Czxid && stat.EphemeralOwner != own.EphemeralOwner
	}
	return earlier, nil
}
