package recipe

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// shared is what the calls of one session have in common, for as long as the session lasts.
type shared struct {
	crowds    crowds
	heads     heads
	permitted permitted
	sweeper   sweeper
	toWatch   toWatch
}

func sharedIn(s *session.Session) *shared {
	return s.ForLocks(trusted.Caller{}).Attached(func() any {
		return &shared{
			crowds:    crowds{s: s, of: map[string]*crowd{}},
			heads:     heads{s: s, known: map[[sha256.Size]byte]*head{}},
			permitted: permitted{s: s, known: map[string]dirACL{}},
			sweeper:   sweeper{s: s, wake: make(chan struct{}, 1)},
			toWatch:   toWatch{s: s},
		}
	}).(*shared)
}

// Each contender lists the directory once when it has entered: right behind its create, in one round trip. Where many calls of
// one session enter one directory at once, that would be bytes in proportion to the square of their number. So those of a
// crowd create first, and then share lists: all that wait take the result of one that begins after their creates were
// acknowledged, which therefore shows them.

// crowdFrom is how many calls of one session that enter one directory at the same time are a crowd.
const crowdFrom = 8

// crowd is what calls that enter one directory at the same time share.
type crowd struct {
	calls int             // that enter
	next  *sharedList     // which has not begun; nil: no call waits for one
	busy  bool            // a goroutine of the session's makes lists
	ctx   context.Context // of that goroutine; nil before there is one
	stop  func()          // when the last call has left
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
	if c.ctx == nil {
		c.ctx, c.stop = context.WithCancel(cs.s.Context())
	}
	list, start := c.next, !c.busy
	c.busy = true
	cs.mu.Unlock()
	if start && !cs.s.Go(func(context.Context) { cs.makeLists(dir, c) }) {
		cs.makeLists(dir, c) // the session is over: the calls that wait get its error
	}
	select {
	case <-list.done:
		return list.Children, list.err
	case <-ctx.Done():
		return session.Children{}, session.Waited(ctx, trusted.Caller{}, errors.New("waiting for the list of "+dir))
	}
}

// makeLists makes one list after the other, as long as a call waits for one and the crowd has calls.
func (cs *crowds) makeLists(dir string, c *crowd) {
	for {
		cs.mu.Lock()
		list := c.next
		c.next = nil
		c.busy = list != nil
		cs.mu.Unlock()
		if list == nil {
			return
		}
		list.Names, list.Stat, list.err = cs.s.List(c.ctx, dir)
		close(list.done)
	}
}

// MaxData bounds the data of a contender that are read to be shown. What this library puts there is shorter; what others
// put there may be as long as the server takes, and is then known by its length only.
const MaxData = 256 << 10

const (
	headsKept = 256              // names of heads that are remembered
	headFresh = 10 * time.Second // for how long: its owner may change the data
)

// heads finds out which contenders are first in the lines that a session waits in. However many wait behind one, its data
// are read once in ten seconds, and not at all when they are longer than MaxData. It may be used concurrently.
type heads struct {
	s     *session.Session
	mu    sync.Mutex                  // guards what follows
	known map[[sha256.Size]byte]*head // by the paths' hashes: names are as long as others like
}

// head is one contender that is known, or is being read by the first who has asked for it.
type head struct {
	done chan struct{} // closed when the rest is final
	who  string
	read bool // its data were read
	at   time.Time
	err  error
}

// who returns what describe makes of the data of contender name in dir; "" when it is gone, may not be read, or describe is
// nil. read: its data were read, so the session may read it. An error says that ctx or the session has ended.
func (h *heads) who(ctx context.Context, describe func([]byte) string, dir, name string) (who string, read bool, err error) {
	if describe == nil {
		return "", false, nil
	}
	key := sha256.Sum256([]byte(dir + "/" + name))
	for {
		e, first := h.enter(key)
		if first {
			e.who, e.read, e.err = h.read(ctx, describe, dir, name)
			h.mu.Lock()
			if e.at = time.Now(); e.err != nil && h.known[key] == e {
				delete(h.known, key) // the next call tries again
			}
			h.mu.Unlock()
			close(e.done)
			return e.who, e.read, e.err
		}
		select {
		case <-e.done:
			if e.err == nil {
				return e.who, e.read, nil
			}
		case <-h.s.Done():
			return "", false, h.s.Err()
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
}

// enter returns what is known of a contender, or, first, a new entry that the caller has to fill in.
func (h *heads) enter(key [sha256.Size]byte) (e *head, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.known[key]; e != nil && (e.at.IsZero() || time.Since(e.at) < headFresh) {
		return e, false
	}
	if len(h.known) >= headsKept {
		clear(h.known) // those that are being read are still read for the calls that wait for them
	}
	e = &head{done: make(chan struct{})}
	h.known[key] = e
	return e, true
}

func (h *heads) read(ctx context.Context, describe func([]byte) string, dir, name string) (who string, read bool, err error) {
	n, err := ReadChild(ctx, h.s, dir, name)
	switch {
	case n.Err != nil:
		return "", false, nil
	case err != nil:
		return "", false, err
	case n.Stat.DataLength > MaxData:
		return fmt.Sprintf("%s (%d bytes of data)", text.Foreign(name), n.Stat.DataLength), false, nil
	}
	return describe(n.Data), true, nil
}

// ReadChild reads the child name of dir: its Stat, and its data unless they are longer than MaxData. The server's refusal is
// in Node.Err too.
func ReadChild(ctx context.Context, s *session.Session, dir, name string) (session.Node, error) {
	nodes, err := s.ReadBelow(ctx, dir, []string{name}, func(stat zk.Stat) bool { return stat.DataLength <= MaxData })
	if err != nil {
		return session.Node{}, err
	}
	return nodes[0], nodes[0].Err
}
