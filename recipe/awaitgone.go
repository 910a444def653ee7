package recipe

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Readable reports whether this session may read the child name of dir, by a read of bounded cost, whatever others have
// put there: of its list of children when it has none, else of its data when they are short. A znode with many of both
// counts as unreadable. zk.ErrNoNode: it is gone.
func Readable(ctx context.Context, s *session.Session, dir, name string) (bool, error) {
	const short = 64 << 10
	node := dir + "/" + name
	stat, err := s.Exists(ctx, node)
	switch {
	case err != nil:
		return false, err
	case stat.NumChildren == 0:
		_, _, err = s.List(ctx, node)
	case stat.DataLength <= short:
		_, _, err = s.Get(ctx, node)
	default:
		return false, nil
	}
	return err == nil, err
}

// AwaitGone waits until the contender name of dir has gone, by a watch, on behalf of one that is not in line. It returns
// nil then, or when the contender's data were set. One that may not be read can't be waited for: then it returns nil
// after a pause of an eighth of the session timeout, for the caller to list again. An error is that of ctx or the
// session.
func AwaitGone(ctx context.Context, s *session.Session, dir, name string) error {
	w, err := s.WatchExisting(ctx, dir+"/"+name)
	switch {
	case errors.Is(err, zk.ErrNoAuth):
	case err != nil:
		return err
	default:
		defer w.Close()
		if !w.Exists {
			return nil
		}
	}
	look := time.NewTimer(WatchAfter) // what is over sooner is not worth a read
	defer look.Stop()
	for pausing := false; ; {
		select {
		case <-fired(w):
			return nil
		case <-look.C:
			if pausing {
				return nil
			}
			if ok, err := Readable(ctx, s, dir, name); ok {
				look.Reset(max(WatchAfter, s.Timeout())) // the watch tells, unless its owner hides the znode meanwhile
				continue
			} else if errors.Is(err, zk.ErrNoNode) {
				return nil
			}
			pausing = true
			look.Reset(s.Timeout() / blindPart)
		case <-s.Done():
			return s.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
