package timeline_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/timeline"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

var update = flag.Bool("update", false, "draw the pictures in docs/timelines anew")

const (
	pictures = "../../docs/timelines"
	dir      = "/locks/report"
	travels  = 5 * time.Millisecond // a request
	seconds  = 100 * time.Millisecond
)

// stage is where a story is played: a server, clients, and a store that they write to.
type stage struct {
	*testing.T
	*timeline.Story
	srv   *zktest.Server
	after sync.WaitGroup // what watches the end of holds and znodes
	blind atomic.Bool    // nobody is there to see the end of A's context
}

// play runs a story in simulated time: act makes its clients, and what that returns is drawn.
func play(t *testing.T, name, title string, step time.Duration, lanes []string, act func(s *stage) (begin func())) *timeline.Story {
	t.Helper()
	var story *timeline.Story
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		require.NoError(t, srv.Create("/locks", nil))
		require.NoError(t, srv.Create(dir, nil))
		srv.Inject(zktest.Delay(travels))
		s := &stage{T: t, srv: srv}
		begin := act(s)
		synctest.Wait()
		time.Sleep(time.Second + 300*time.Millisecond) // no story begins on a tick of the server's
		s.Story = timeline.New(name, title, step, lanes...)
		begin()
		s.Close()
		story = s.Story
	})
	return story
}

// client is one that is connected already. m is its server; nil is the leader.
func (s *stage) client(m *zktest.Member) *zklock.Client {
	s.Helper()
	dial := s.srv.Dial
	addr := s.srv.Addr()
	if m != nil {
		dial, addr = m.Dial, m.Addr()
	}
	c, err := zklock.Dial(s.Context(), addr, zklock.WithDialer(dial))
	require.NoError(s, err)
	s.Cleanup(func() { _ = c.Close() }) // its link may be dead
	_, err = c.Session(s.Context())
	require.NoError(s, err)
	return c
}

// lock takes the lock and tells of the wait, of the hold, of its end, and of its znode.
func (s *stage) lock(lane string, c *zklock.Client) *zklock.Hold {
	s.Helper()
	id := sessionOf(s, c)
	s.Begin(lane, timeline.Waits)
	s.after.Go(func() {
		if s.srv.Await(s.Context(), func() bool { return s.contends(id) }) == nil {
			s.Begin(lane, timeline.Znode)
		}
		if s.srv.Await(s.Context(), func() bool { return !s.contends(id) }) == nil {
			s.End(lane, timeline.Znode)
			s.Tell(lane, "%s's znode is gone", lane)
		}
	})
	h, err := c.Mutex(dir).Lock(s.Context())
	require.NoError(s, err)
	s.End(lane, timeline.Waits)
	s.Begin(lane, timeline.Holds)
	s.Tell(lane, "%s holds", lane)
	s.after.Go(func() {
		<-h.Context().Done()
		s.End(lane, timeline.Holds)
		switch cause := context.Cause(h.Context()); {
		case errors.Is(cause, zklock.ErrLeaseOver) && s.blind.Load():
			s.Tell(lane, "%s's lease is over", lane)
		case errors.Is(cause, zklock.ErrLeaseOver):
			s.Tell(lane, "%s's context ends by its own clock: lease over", lane)
		case errors.Is(cause, zklock.ErrLost):
			s.Tell(lane, "%s's context ends: %v", lane, cause)
		}
	})
	return h
}

// contends reports whether a session has a znode in the lock's directory.
func (s *stage) contends(id int64) bool {
	return slices.ContainsFunc(s.srv.Children(dir), func(name string) bool {
		n, ok := s.srv.Node(dir + "/" + name)
		return ok && n.Stat.EphemeralOwner == id
	})
}

// release unlocks, after the work.
func (s *stage) release(lane string, h *zklock.Hold, work time.Duration) {
	s.Helper()
	time.Sleep(work)
	s.Tell(lane, "%s unlocks", lane)
	require.NoError(s, h.Unlock(s.Context()))
}

func crash(t *testing.T) *timeline.Story {
	return play(t, "crash", "A holder crashes", seconds, []string{"A", "B"}, func(s *stage) func() {
		a, b := s.client(nil), s.client(nil)
		return func() {
			s.lock("A", a)
			id := sessionOf(s, a)
			time.Sleep(1500 * time.Millisecond)
			s.Tell("A", "A's machine fails")
			s.blind.Store(true)
			s.End("A", timeline.Holds)
			s.Begin("A", timeline.Trouble)
			s.srv.Inject(zktest.Freeze().Session(id))
			s.release("B", s.lock("B", b), time.Second)
			s.after.Wait()
		}
	})
}

func cutHolder(t *testing.T) *timeline.Story {
	return play(t, "cut-holder", "A holder is cut off, and lives", seconds, []string{"A", "B"}, func(s *stage) func() {
		a, b := s.client(nil), s.client(nil)
		return func() {
			h := s.lock("A", a)
			id := sessionOf(s, a)
			time.Sleep(1500 * time.Millisecond)
			s.Tell("A", "A hears nothing any more")
			s.Begin("A", timeline.Trouble)
			dead := s.srv.Inject(zktest.Freeze().Session(id))
			s.release("B", s.lock("B", b), 2*time.Second)
			s.after.Wait()
			time.Sleep(5 * seconds)
			dead.Remove()
			s.End("A", timeline.Trouble)
			require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrLost)
			s.Tell("A", "A is back; its Unlock says ErrLost")
			time.Sleep(500 * time.Millisecond)
		}
	})
}

func cutFollower(t *testing.T) *timeline.Story {
	return play(t, "cut-follower", "A holder's server is cut off from its leader", seconds, []string{"A", "server", "B"}, func(s *stage) func() {
		f, err := s.srv.Follower()
		require.NoError(s, err)
		a, b := s.client(f), s.client(nil)
		return func() {
			s.lock("A", a)
			time.Sleep(1500 * time.Millisecond)
			s.Tell("server", "cut off; it goes on answering A's pings")
			s.Begin("server", timeline.Trouble)
			f.CutOff()
			s.release("B", s.lock("B", b), time.Second)
			s.after.Wait()
			f.Heal()
		}
	})
}

func stoppedProcess(t *testing.T) *timeline.Story {
	return play(t, "stopped-process", "A process is stopped, and wakes up", seconds, []string{"A", "B", "with token", "without"}, func(s *stage) func() {
		a, b := s.client(nil), s.client(nil)
		return func() {
			h := s.lock("A", a)
			id := sessionOf(s, a)
			var row zklock.Token
			write := func(who string, h *zklock.Hold) {
				if h.Token() < row {
					s.Tell("with token", "the store refuses %s's write: its token is too old", who)
				} else {
					row = h.Token()
					s.Tell("with token", "the store takes %s's write", who)
				}
			}
			time.Sleep(time.Second)
			write("A", h)
			time.Sleep(seconds)
			s.Tell("A", "A's process is stopped, just before its next write")
			s.blind.Store(true)
			s.End("A", timeline.Holds) // nobody looks at the context
			s.Begin("A", timeline.Stopped)
			s.srv.Inject(zktest.Freeze().Session(id))
			next := s.lock("B", b)
			time.Sleep(time.Second)
			write("B", next)
			time.Sleep(2 * time.Second)
			s.End("A", timeline.Stopped)
			require.ErrorIs(s, h.Err(), zklock.ErrLost)
			s.Tell("A", "A wakes, and writes before it looks at its context")
			time.Sleep(seconds)
			write("A", h)
			s.Warn("without", "a store that compares no tokens takes it: B's write is lost")
			s.release("B", next, time.Second)
			s.after.Wait()
		}
	})
}

func lostReply(t *testing.T) *timeline.Story {
	return play(t, "lost-reply", "The reply to a create is lost", 20*time.Millisecond, []string{"A"}, func(s *stage) func() {
		a := s.client(nil)
		return func() {
			lost := s.srv.Inject(zktest.CloseAfter().Op(zktest.OpCreate, zktest.OpCreate2).Once())
			s.after.Go(func() {
				require.NoError(s, lost.Wait(s.Context(), 1))
				s.Tell("A", "the connection breaks before the reply to the create")
				s.Begin("A", timeline.Trouble)
			})
			h := s.lock("A", a)
			s.End("A", timeline.Trouble)
			s.Tell("A", "found by its id on the next connection: %d znode", len(s.srv.Children(dir)))
			s.release("A", h, 200*time.Millisecond)
			s.after.Wait()
		}
	})
}

func handOver(t *testing.T) *timeline.Story {
	return play(t, "hand-over", "Three in line: one release wakes one", travels, []string{"A", "B", "C"}, func(s *stage) func() {
		a, b, c := s.client(nil), s.client(nil), s.client(nil)
		return func() {
			h := s.lock("A", a)
			var waiting sync.WaitGroup
			waiting.Go(func() { s.release("B", s.lock("B", b), 50*time.Millisecond) })
			time.Sleep(20 * time.Millisecond)
			waiting.Go(func() { s.release("C", s.lock("C", c), 50*time.Millisecond) })
			s.release("A", h, 60*time.Millisecond)
			waiting.Wait()
			s.after.Wait()
		}
	})
}

func sessionOf(s *stage, c *zklock.Client) int64 {
	s.Helper()
	session, err := c.Session(s.Context())
	require.NoError(s, err)
	return session.ID()
}

// The pictures of docs/when-things-fail.md are what the code does now, and whoever runs it again sees the same.
func TestThePicturesAreWhatTheCodeDoesNow(t *testing.T) {
	stories := []func(*testing.T) *timeline.Story{crash, cutHolder, cutFollower, stoppedProcess, lostReply, handOver}
	page, err := os.ReadFile("../../docs/when-things-fail.md")
	require.NoError(t, err)
	for _, tell := range stories {
		story := tell(t)
		file := filepath.Join(pictures, story.Name+".svg")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(story.SVG()), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), story.SVG(), "go test ./internal/timeline -update draws it anew")
		assert.Contains(t, string(page), "](timelines/"+story.Name+".svg)")
	}
	drawn, err := filepath.Glob(pictures + "/*.svg")
	require.NoError(t, err)
	require.Len(t, drawn, len(stories), "a picture of no story")
}
