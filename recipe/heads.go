package recipe

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// MaxData bounds the data of a contender that are read to be shown. What this library puts there is shorter; what others
// put there may be as long as the server takes, and is then known by its length only.
const MaxData = 256 << 10

const (
	headsKept = 256              // names of heads that are remembered
	headFresh = 10 * time.Second // for how long: its owner may change the data
)

// Heads finds out which contenders are first in the lines that a client waits in. However many wait behind one, its data
// are read once in ten seconds per session, and not at all when they are longer than MaxData. It may be used
// concurrently; nil returns no names.
type Heads struct {
	describe func(data []byte) string

	mu    sync.Mutex // guards what follows
	known map[headKey]*head
}

type headKey struct {
	session int64
	path    [sha256.Size]byte // its hash: names are as long as others like
}

// head is one contender that is known, or is being read by the first who has asked for it.
type head struct {
	done chan struct{} // closed when the rest is final
	who  string
	read bool // its data were read
	at   time.Time
	err  error
}

// NewHeads returns a Heads. describe turns a contender's data into its name for messages; "" if they have none.
func NewHeads(describe func(data []byte) string) *Heads {
	return &Heads{describe: describe, known: map[headKey]*head{}}
}

// Who returns a display name for contender name in dir; "" when it is gone, may not be read, or its data have none.
// read: its data were read, so the session may read it. An error says that ctx or the session has ended.
func (h *Heads) Who(ctx context.Context, s *session.Session, dir, name string) (who string, read bool, err error) {
	if h == nil {
		return "", false, nil
	}
	key := headKey{s.ID(), sha256.Sum256([]byte(dir + "/" + name))}
	for {
		e, first := h.enter(key)
		if first {
			e.who, e.read, e.err = h.read(ctx, s, dir, name)
			h.mu.Lock()
			if e.at = time.Now(); e.err != nil && h.known[key] == e {
				delete(h.known, key) // whoever asks next tries again
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
		case <-s.Done():
			return "", false, s.Err()
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
}

// enter returns what is known of a contender, or, first, a new entry that the caller has to fill in.
func (h *Heads) enter(key headKey) (e *head, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.known[key]; e != nil && (e.at.IsZero() || time.Since(e.at) < headFresh) {
		return e, false
	}
	if len(h.known) >= headsKept {
		clear(h.known) // those that are being read are read for whoever waits for them
	}
	e = &head{done: make(chan struct{})}
	h.known[key] = e
	return e, true
}

func (h *Heads) read(ctx context.Context, s *session.Session, dir, name string) (who string, read bool, err error) {
	n, err := ReadChild(ctx, s, dir, name)
	switch {
	case n.Err != nil:
		return "", false, nil
	case err != nil:
		return "", false, err
	case n.Stat.DataLength > MaxData:
		return fmt.Sprintf("%s (%d bytes of data)", text.Foreign(name), n.Stat.DataLength), false, nil
	}
	return h.describe(n.Data), true, nil
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
