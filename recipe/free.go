package recipe

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Free returns the size of q's semaphore at the ensemble, the expected one where it has none yet, and how many permits
// nobody has or waits for. It writes nothing. ErrConflict: the directory has data that are not this library's.
func (z *Size) Free(ctx context.Context, s *session.Session, q Queue) (size, free int, err error) {
	if err := s.Sync(ctx, q.Dir); err != nil {
		return 0, 0, err
	}
	d, _, err := q.readData(ctx, s)
	var names []string
	if err == nil {
		names, _, err = s.List(ctx, q.Dir)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) { // which has no contenders, and the size that the first one brings
		return 0, 0, err
	}
	if size = d.Size; size == 0 {
		size = z.want
	}
	free = size
	for _, name := range names {
		if n, ok := Parse(name); ok && n.Kind == Permits {
			free -= min(n.Permits, free)
		}
	}
	return size, free, nil
}
