package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// ZooKeeper itself can lose acknowledged writes when servers fail at a bad moment: among others in
// versions before 3.8.4 and 3.9.2, where a follower that has been sent what it missed can go back
// to voting before that is in its log, and still win (ZOOKEEPER-4785). The znodes of locks and of
// registers are then as they were before those writes, and a client can do nothing against it. To
// tell this fault of ZooKeeper from a fault of the locks, a witness for each server writes through
// it to a znode of its own, without a lock, with a short pause. The version of a znode grows with
// every write; when two acknowledged writes get the same version, the ensemble has lost the first,
// and the round proves nothing.

// witnessEvery is the pause between two writes of a witness.
const witnessEvery = 10 * time.Millisecond

// witness is the goroutines that write, one for each server.
type witness struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex // guards what follows
	found []string
}

// watchEnsemble starts the witnesses on znodes below root, which exists.
func (r *Run) watchEnsemble(root string) *witness {
	ctx, cancel := context.WithCancel(context.Background())
	w := &witness{stop: cancel}
	e := r.conf.Ensemble
	for i, addr := range e.Addrs {
		w.running.Go(func() { // ends with ctx, when finish is called
			w.write(ctx, addr, fmt.Sprintf("%s/witness-%d", root, i+1),
				session.Config{Timeout: 20 * e.Tick, TickTime: e.Tick})
		})
	}
	return w
}

// finish ends the writing and returns what was found.
func (w *witness) finish() []string {
	w.stop()
	w.running.Wait()
	return w.found
}

// write writes, in one session after another, until ctx ends.
func (w *witness) write(ctx context.Context, addr, path string, conf session.Config) {
	last := int32(-1) // the version of the latest write that was acknowledged
	for ctx.Err() == nil {
		s, err := session.Open(ctx, addr, conf)
		if err != nil {
			rest(ctx, witnessEvery)
			continue // the server does not serve: the others have witnesses of their own
		}
		for s.Err() == nil && ctx.Err() == nil {
			last = w.once(ctx, s, path, last)
			rest(ctx, witnessEvery)
		}
		if err := s.Close(); err != nil {
			w.say(err.Error())
		}
	}
}

// once makes one write and returns the latest version that is known to have been acknowledged.
func (w *witness) once(ctx context.Context, s *session.Session, path string, last int32) int32 {
	stat, err := s.Set(ctx, path, nil, -1)
	switch {
	case errors.Is(err, zk.ErrNoNode) && last < 0:
		if _, err := s.Create(ctx, path, nil, session.Persistent, session.WorldACL()); err == nil {
			return 0
		}
	case errors.Is(err, zk.ErrNoNode):
		w.say(fmt.Sprintf("%s is gone, and had been written %d times", path, last))
		return -1
	case err == nil && stat.Version <= last:
		w.say(fmt.Sprintf("%s got version %d, and had got %d before", path, stat.Version, last))
		return stat.Version
	case err == nil:
		return stat.Version
	}
	return last // no answer, or no connection: perhaps made
}

func (w *witness) say(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, what)
}
