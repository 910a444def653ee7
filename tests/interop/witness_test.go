package interop_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// witness checks one lock: it records which contenders are inside, and asks the ensemble for the
// holders.
type witness struct {
	client *zklock.Client
	path   string

	mu      sync.Mutex // guards the fields below
	inside  map[*contender]string
	last    int            // the number of the latest holder's place in line
	entries map[string]int // by kind
	mixed   int            // times that readers of different kinds were inside together
	broken  []error
}

// newWitness returns one with a client of its own.
func newWitness(t *testing.T, e *ensemble.Ensemble, path string) *witness {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	c, err := zklock.Dial(ctx, e.Connect(), zklock.WithSessionTimeout(calm))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	w := &witness{client: c, path: path, last: -1, inside: map[*contender]string{},
		entries: map[string]int{}}
	s, err := c.Session(ctx)
	require.NoError(t, err)
	require.NoError(t, s.CreateAll(ctx, w.mark(), nil, session.Persistent, session.WorldACL()))
	return w
}

// mark is a znode beside the lock.
func (w *witness) mark() string { return w.path + "-witness" }

// queue returns the contenders in line, including all that any client has seen before the call. The
// sync in Queue is not enough for that when the witness is connected to the leader: in 3.8.0 the
// leader answers a sync before it has itself applied what it has told a follower to commit, and a
// client of that follower may have seen it. A server's answers after a write of ours include
// everything that was committed before the write.
func (w *witness) queue(ctx context.Context) ([]admin.Contender, error) {
	for {
		s, err := w.client.Session(ctx)
		if err == nil {
			_, err = s.Set(ctx, w.mark(), nil, -1)
		}
		if err == nil {
			return locktest.Queue(ctx, w.client, w.path)
		}
		if !errors.Is(err, session.ErrUnknownOutcome) { // a second create is harmless
			return nil, err
		}
	}
}

func (w *witness) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.broken...)
}

// shares returns how often each kind has entered so far.
func (w *witness) shares() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var text []string
	for _, k := range kinds {
		if n := w.entries[k]; n > 0 {
			text = append(text, fmt.Sprint(k, " ", n))
		}
	}
	return strings.Join(text, ", ")
}

// enter records that a contender holds now. It must be alone, or a reader among readers.
func (w *witness) enter(c *contender, mode string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, its := range w.inside {
		if mode != "read" || its != "read" {
			w.broken = append(w.broken,
				fmt.Errorf("%s has it (%s) while %s has (%s)", c.name, mode, other.name, its))
		} else if other.kind != c.kind {
			w.mixed++
		}
	}
	w.inside[c] = mode
	w.entries[c.kind]++
}

// leave records that a contender is about to release.
func (w *witness) leave(c *contender) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inside, c)
}

// check asks the ensemble: the contender that holds is shown as the holder, alone, and its place in
// line comes after that of all earlier holders, so that none was overtaken. For a mutex; called
// between enter and leave.
func (w *witness) check(ctx context.Context, c *contender) error {
	line, err := w.queue(ctx)
	if err != nil {
		return err
	}
	holders := 0
	for _, k := range line {
		if k.Kind != "mutex" {
			return fmt.Errorf("%s is shown as a %s", k.Node, k.Kind)
		}
		if k.Holds {
			holders++
		}
	}
	if holders != 1 || !line[0].Holds || line[0].Session != c.session {
		return fmt.Errorf("%s (session %#x) holds, and the queue shows %+v", c.name, c.session,
			line)
	}
	n, err := strconv.Atoi(line[0].Node[len(line[0].Node)-10:])
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n <= w.last {
		return fmt.Errorf("%s, with number %d, was overtaken by number %d", c.name, n, w.last)
	}
	w.last = n
	return nil
}

// checkShared is check for a read/write lock: a contender that holds is shown as a holder, and a
// writer as the only one.
func (w *witness) checkShared(ctx context.Context, c *contender, mode string) error {
	line, err := w.queue(ctx)
	if err != nil {
		return err
	}
	own, holders := false, 0
	for _, k := range line {
		own = own || k.Holds && k.Session == c.session && string(k.Kind) == mode
		if k.Holds {
			holders++
		}
	}
	if !own || mode == "write" && holders != 1 {
		return fmt.Errorf("%s (session %#x) holds (%s), and the queue shows %+v", c.name, c.session,
			mode, line)
	}
	return nil
}

// awaitLine returns the line when it has that many contenders.
func (w *witness) awaitLine(t *testing.T, n int) []admin.Contender {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var line []admin.Contender
	ensemble.Until(t, bound, fmt.Sprint(n, " in line"), func() (err error) {
		if line, err = w.queue(ctx); err == nil && len(line) != n {
			err = fmt.Errorf("%d are", len(line))
		}
		return err
	})
	return line
}
