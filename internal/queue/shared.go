package queue

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
)

// shared is what the calls of one session have in common, for as long as the session lasts.
type shared struct {
	descriptions descriptions
	sweeper      sweeper
	toWatch      toWatch
	looking      chan struct{} // taken while a waiter lists without an event; capacity 1
}

func sharedIn(s *session.Session) *shared {
	return s.Attached(func() any {
		return &shared{
			descriptions: descriptions{s: s, known: map[[sha256.Size]byte]*description{}},
			sweeper:      sweeper{s: s},
			toWatch:      toWatch{s: s},
			looking:      make(chan struct{}, 1),
		}
	}).(*shared)
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
	at   time.Time
}

// who returns what describe makes of the data of the contender node; "" when it is gone, may not be read, could not be read
// before ctx or the session ended, or describe is nil.
func (ds *descriptions) who(ctx context.Context, describe func([]byte) string, node string) string {
	if describe == nil {
		return ""
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
		return ""
	}
	if time.Since(d.at) < descriptionFresh {
		return d.who
	}
	dir, name := path.Split(node)
	n, err := ReadChild(ctx, ds.s, path.Clean(dir), name)
	if err == nil || n.Err != nil {
		d.at = time.Now() // else the next call tries again
	}
	switch d.who = ""; {
	case err != nil:
	case n.Stat.DataLength > MaxData:
		d.who = fmt.Sprintf("%s (%d bytes of data)", text.Foreign(name), n.Stat.DataLength)
	default:
		d.who = describe(n.Data)
	}
	return d.who
}

// ReadChild reads the child name of dir: its Stat, and its data unless longer than MaxData. Node.Err has a refusal, too.
func ReadChild(ctx context.Context, s *session.Session, dir, name string) (session.Node, error) {
	nodes, err := s.ReadBelow(ctx, dir, []string{name}, func(stat zk.Stat) bool { return stat.DataLength <= MaxData })
	if err != nil {
		return session.Node{}, err
	}
	return nodes[0], nodes[0].Err
}
