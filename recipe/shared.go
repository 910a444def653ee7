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
	holders   holders
	permitted permitted
	sweeper   sweeper
	toWatch   toWatch
}

func sharedIn(s *session.Session) *shared {
	return s.ForLocks(trusted.Caller{}).Attached(func() any {
		return &shared{
			crowds:    crowds{s: s, of: map[string]*crowd{}},
			holders:   holders{s: s, known: map[[sha256.Size]byte]*holder{}},
			permitted: permitted{s: s, known: map[string]dirACL{}},
			sweeper:   sweeper{s: s},
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
	calls int           // that enter
	turn  chan struct{} // has room for the one call that makes a list; nil before there was one
	begun int           // lists that calls have begun

	// The latest list, and which of those begun it is. Only the call that has the turn uses them.
	list session.Children
	err  error
	at   int
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
	if cs.of[dir].calls--; cs.of[dir].calls == 0 {
		delete(cs.of, dir)
	}
}

// list returns a list of the directory that began after the call did. The names are others' as well, and are not to be
// changed. The caller is in the crowd.
func (cs *crowds) list(ctx context.Context, dir string) (session.Children, error) {
	cs.mu.Lock()
	c := cs.of[dir]
	if c.turn == nil {
		c.turn = make(chan struct{}, 1)
	}
	before := c.begun
	cs.mu.Unlock()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return session.Children{}, session.Waited(ctx, trusted.Caller{}, errors.New("waiting for the list of "+dir))
	}
	if c.at <= before {
		cs.mu.Lock()
		c.begun++
		at := c.begun
		cs.mu.Unlock()
		names, stat, err := cs.s.List(ctx, dir)
		if err != nil && ctx.Err() != nil {
			return session.Children{}, err // the next call makes one
		}
		c.list, c.err, c.at = session.Children{Names: names, Stat: stat}, err, at
	}
	return c.list, c.err
}

// MaxData bounds the data of a contender that are read to be shown. What this library puts there is shorter; what others
// put there may be as long as the server takes, and is then known by its length only.
const MaxData = 256 << 10

const (
	holdersKept = 256              // that are remembered
	holderFresh = 10 * time.Second // for how long: its owner may change the data
)

// holders finds out, from their data, who the contenders are that are first in the lines that a session waits in. (Which
// contenders hold, for onlookers, is in holders.go.) However many wait behind one, its data are read once in ten seconds, and
// not at all when they are longer than MaxData. It may be used concurrently.
type holders struct {
	s     *session.Session
	mu    sync.Mutex                    // guards what follows
	known map[[sha256.Size]byte]*holder // by the paths' hashes: names are as long as others like
}

// holder is what is known of one contender.
type holder struct {
	turn chan struct{} // has room for the one call that may use what follows
	who  string
	read bool // its data were read
	at   time.Time
}

// who returns what describe makes of the data of contender name in dir; "" when it is gone, may not be read, or describe is
// nil. read: its data were read, so the session may read it. An error says that ctx or the session has ended.
func (h *holders) who(ctx context.Context, describe func([]byte) string, dir, name string) (who string, read bool, err error) {
	if describe == nil {
		return "", false, nil
	}
	key := sha256.Sum256([]byte(dir + "/" + name))
	h.mu.Lock()
	e := h.known[key]
	if e == nil {
		if len(h.known) >= holdersKept {
			clear(h.known)
		}
		e = &holder{turn: make(chan struct{}, 1)}
		h.known[key] = e
	}
	h.mu.Unlock()
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return "", false, ctx.Err()
	}
	if time.Since(e.at) >= holderFresh {
		if e.who, e.read, err = h.read(ctx, describe, dir, name); err == nil {
			e.at = time.Now() // else the next call tries again
		}
	}
	return e.who, e.read, err
}

func (h *holders) read(ctx context.Context, describe func([]byte) string, dir, name string) (who string, read bool, err error) {
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
