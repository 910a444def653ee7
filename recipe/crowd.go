package recipe

import (
	"context"
	"errors"
	"sync"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// Each contender lists the directory once when it has entered. Where a few calls of one session enter one directory, each
// sends its list right behind its create, in one round trip. Where many do at once, that would be bytes in proportion to
// the square of their number. So those of a crowd create first, and then share lists: of each list that begins after
// their create was acknowledged, which therefore shows it, all that wait for one take the result.

// crowdFrom is how many calls of one session that enter one directory at the same time are a crowd.
const crowdFrom = 8

// crowd is what calls that enter one directory at the same time share.
type crowd struct {
	calls int         // that enter
	next  *sharedList // which has not begun; nil: no call waits for one
	busy  bool        // a goroutine of the session's makes lists
	stop  func()      // ends its wait for a list, when the last call has left; nil before there is such a goroutine
}

// sharedList is one list for many.
type sharedList struct {
	done chan struct{} // closed when the others are set
	session.Children
	err error
}

// crowds knows which directories the calls of a session are entering. It may be used concurrently.
type crowds struct {
	s  *session.Session
	mu sync.Mutex // guards what follows, and the crowds
	of map[string]*crowd
}

// join counts a call that enters, until leave. many: it is one of a crowd.
func (cs *crowds) join(dir string) (many bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.of[dir]
	if c == nil {
		c = &crowd{}
		cs.of[dir] = c
	}
	c.calls++
	return c.calls >= crowdFrom
}

func (cs *crowds) leave(dir string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.of[dir]
	if c.calls--; c.calls == 0 {
		delete(cs.of, dir)
		if c.stop != nil {
			c.stop()
		}
	}
}

// list returns a list of the directory that began after the call did. The names are others' as well, and are not to be
// changed. The caller is in the crowd.
func (cs *crowds) list(ctx context.Context, dir string) (session.Children, error) {
	cs.mu.Lock()
	c := cs.of[dir]
	if c.next == nil {
		c.next = &sharedList{done: make(chan struct{})}
	}
	list, start := c.next, !c.busy
	c.busy = true
	cs.mu.Unlock()
	if start && !cs.s.Go(func(ctx context.Context) { cs.makeLists(ctx, dir, c) }) {
		cs.makeLists(cs.s.Context(), dir, c) // the session is over: the calls that wait get its error
	}
	select {
	case <-list.done:
		return list.Children, list.err
	case <-ctx.Done():
		return session.Children{}, session.Waited(ctx, trusted.Caller{}, errors.New("waiting for the list of "+dir))
	}
}

// makeLists makes one list after the other, as long as a call waits for one and the crowd has calls. ctx is the session's.
func (cs *crowds) makeLists(ctx context.Context, dir string, c *crowd) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cs.mu.Lock()
	if c.stop = stop; c.calls == 0 {
		stop()
	}
	cs.mu.Unlock()
	for {
		cs.mu.Lock()
		list := c.next
		c.next = nil
		c.busy = list != nil
		cs.mu.Unlock()
		if list == nil {
			return
		}
		list.Names, list.Stat, list.err = cs.s.List(ctx, dir)
		close(list.done)
	}
}
