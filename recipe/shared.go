package recipe

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// shared is what the calls of one session have in common, for as long as the session lasts.
type shared struct {
	crowds       crowds
	descriptions descriptions
	permitted    permitted
	sweeper      sweeper
	toWatch      toWatch
}

func sharedIn(s *session.Session) *shared {
	return s.ForLocks(trusted.Caller{}).Attached(func() any {
		return &shared{
			crowds:       crowds{of: map[string]*crowd{}},
			descriptions: descriptions{s: s, known: map[[sha256.Size]byte]*description{}},
			permitted:    permitted{s: s, known: map[string]dirACL{}},
			sweeper:      sweeper{s: s},
			toWatch:      toWatch{s: s},
		}
	}).(*shared)
}

// Each contender lists the directory once when it has entered, in one round trip with its create. Where many calls of one
// session enter one directory at once, that would cost bytes in proportion to the square of their number. So the calls of a
// crowd create first, and each takes the first shared list that begins after its create was acknowledged.

// crowdFrom is how many calls of one session that enter one directory at the same time are a crowd.
const crowdFrom = 8

type crowd struct {
	calls int           // that enter
	turn  chan struct{} // has room for the one call that makes a list; nil until there are many calls
	begun atomic.Int64  // lists that calls have begun

	// The latest list, and which of those begun it is. Only the call that has the turn uses them.
	latest session.Children
	err    error
	at     int64
}

// crowds knows which directories the calls of a session are entering. It may be used concurrently.
type crowds struct {
	mu sync.Mutex // guards what follows, and the crowds' calls
	of map[string]*crowd
}

// join counts a call that enters, until leave. many: it is one of a crowd.
func (cs *crowds) join(dir string) (c *crowd, many bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c = cs.of[dir]; c == nil {
		c = &crowd{}
		cs.of[dir] = c
	}
	c.calls++
	many = c.calls >= crowdFrom
	if many && c.turn == nil {
		c.turn = make(chan struct{}, 1)
	}
	return c, many
}

func (cs *crowds) leave(dir string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.of[dir].calls--; cs.of[dir].calls == 0 {
		delete(cs.of, dir)
	}
}

// list returns a list of the crowd's directory that began after this call did. The names are shared: do not change them.
// The caller is one of many in the crowd.
func (c *crowd) list(ctx context.Context, s *session.Session, dir string) (session.Children, error) {
	before := c.begun.Load()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return session.Children{}, session.Waited(ctx, trusted.Caller{}, errors.New("waiting for the list of "+dir))
	}
	if c.at <= before {
		at := c.begun.Add(1)
		names, stat, err := s.List(ctx, dir)
		if err != nil && ctx.Err() != nil {
			return session.Children{}, err // the next call makes one
		}
		c.latest, c.err, c.at = session.Children{Names: names, Stat: stat}, err, at
	}
	return c.latest, c.err
}

// MaxData bounds the data of a contender that are read to be shown. This library's are shorter; longer ones are not read.
const MaxData = 256 << 10

const (
	descriptionsKept = 256              // that are remembered
	descriptionFresh = 10 * time.Second // for how long: the contender's owner may change the data
)

// descriptions has what Queue.Describe makes of the data of the contenders that are first in the lines in which a session
// waits. However many calls wait behind one, its data are read once in descriptionFresh. It may be used concurrently.
type descriptions struct {
	s     *session.Session
	mu    sync.Mutex                         // guards what follows
	known map[[sha256.Size]byte]*description // by the paths' hashes: a neighbour's name may be long
}

type description struct {
	turn chan struct{} // has room for the one call that may use what follows
	who  string
	read bool // its data were read
	at   time.Time
}

// who returns what describe makes of the data of the contender node; "" when it is gone, may not be read, could not be read
// before ctx or the session ended, or describe is nil. read: its data were read, so the session may read it.
func (ds *descriptions) who(ctx context.Context, describe func([]byte) string, node string) (who string, read bool) {
	if describe == nil {
		return "", false
	}
	key := sha256.Sum256([]byte(node))
	ds.mu.Lock()
	d := ds.known[key]
	if d == nil {
		if len(ds.known) >= descriptionsKept {
			clear(ds.known)
		}
		d = &description{turn: make(chan struct{}, 1)}
		ds.known[key] = d
	}
	ds.mu.Unlock()
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return "", false
	}
	if time.Since(d.at) < descriptionFresh {
		return d.who, d.read
	}
	dir, name := path.Split(node)
	n, err := ReadChild(ctx, ds.s, path.Clean(dir), name)
	if err == nil || n.Err != nil {
		d.at = time.Now() // else the next call tries again
	}
	switch d.who, d.read = "", false; {
	case err != nil:
	case n.Stat.DataLength > MaxData:
		d.who = fmt.Sprintf("%s (%d bytes of data)", text.Foreign(name), n.Stat.DataLength)
	default:
		d.who, d.read = describe(n.Data), true
	}
	return d.who, d.read
}

// ReadChild reads the child name of dir: its Stat, and its data unless longer than MaxData. Node.Err has a refusal, too.
func ReadChild(ctx context.Context, s *session.Session, dir, name string) (session.Node, error) {
	nodes, err := s.ReadBelow(ctx, dir, []string{name}, func(stat zk.Stat) bool { return stat.DataLength <= MaxData })
	if err != nil {
		return session.Node{}, err
	}
	return nodes[0], nodes[0].Err
}
