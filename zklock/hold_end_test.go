package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// dirs makes the directories /m/a, /m/b, … and returns their paths.
func dirs(s *locktest.Sim, n int) []string {
	s.Helper()
	require.NoError(s, s.Server.Create("/m", nil))
	var dirs []string
	for i := range n {
		dirs = append(dirs, s.Dir(fmt.Sprintf("/m/%c", 'a'+i)))
	}
	return dirs
}

// emptyAll requires that all of the directories are empty within limit.
func emptyAll(s *locktest.Sim, limit time.Duration, dirs []string) {
	s.Helper()
	for _, dir := range dirs {
		s.Empty(limit, dir)
	}
}

// ending is one hold, or several of one acquisition, and everything that may end it, at random
// moments within 20 ms.
type ending struct {
	*locktest.Sim
	rnd  *rand.Rand
	c    *locktest.Client
	dirs []string
	all  sync.WaitGroup

	closed bool // the client is closed, too

	mu  sync.Mutex // guards what follows
	log []string
	// They count, for each acquisition, the hooks' calls for its beginning and its end.
	began, ended map[uint64]int
}

func (e *ending) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.log = append(e.log, fmt.Sprintf(format, args...))
}

// one is true with probability 1/n.
func (e *ending) one(n int) bool { return e.rnd.IntN(n) == 0 }

// at runs fn at a random moment of the next 20 ms.
func (e *ending) at(what string, fn func()) {
	after := time.Duration(e.rnd.IntN(20_000)) * time.Microsecond
	if e.one(3) {
		after = after.Truncate(10 * time.Millisecond) // several at the very same moment
	}
	e.note("%s after %v", what, after)
	e.all.Go(func() {
		time.Sleep(after)
		fn()
	})
}

// unlock releases h.
func (e *ending) unlock(name string, h *zklock.Hold) {
	e.at("unlock of "+name, func() {
		if err := h.Unlock(); err != nil && !errors.Is(err, zklock.ErrLost) &&
			!errors.Is(err, zklock.ErrClosed) {
			e.Errorf("%s: unlock: %v", name, err)
		}
		if h.Context().Err() == nil {
			e.Errorf("%s: released, and its context has not ended", name)
		}
	})
}

// acquire takes a lock of some kind, and returns its holds by name.
func (e *ending) acquire(opts []zklock.LockOption) (holds map[string]*zklock.Hold) {
	e.Helper()
	holds = map[string]*zklock.Hold{}
	take := func(name string, ctx context.Context, lock locktest.Acquire) *zklock.Hold { //nolint:revive // name first
		_, h, err := lock(ctx)
		require.NoError(e, err)
		holds[name] = h
		return h
	}
	switch e.rnd.IntN(6) {
	case 0:
		e.note("mutex")
		take("mutex", e.Context(), e.c.Mutex(e.dirs[0], opts...).Lock)
	case 1:
		e.note("handoff")
		take("handoff", e.Context(),
			e.c.Mutex(e.dirs[0], append(opts, zklock.WithLocalHandoff())...).Lock)
	case 2, 3:
		e.note("multi")
		take("multi", e.Context(), e.c.MultiLock(e.dirs, opts...).Lock)
	default:
		e.note("rw")
		rw := e.c.RWMutex(e.dirs[0], append(opts, zklock.WithReentrancy())...)
		w := take("write", e.Context(), rw.Lock)
		if e.one(2) {
			take("write again", w.Context(), rw.Lock)
		}
	}
	return holds
}

// disturb does everything else that may end a hold.
func (e *ending) disturb(holds map[string]*zklock.Hold) {
	for _, h := range holds {
		nodes := h.Nodes()
		if e.one(2) {
			node := nodes[e.rnd.IntN(len(nodes))]
			e.at("deletion of "+node, func() {
				if err := e.Server.Delete(node); err != nil && !errors.Is(err, fault.CodeNoNode) {
					e.Error(err)
				}
			})
		}
		break // they share the znodes
	}
	id := e.c.SessionID()
	if e.one(4) {
		e.at("connections drop", e.Server.DropConnections)
	}
	if e.one(8) {
		e.at("expiry", func() {
			if err := e.Server.Expire(id); err != nil && !errors.Is(err, fault.CodeUnknownSession) {
				e.Error(err)
			}
		})
	}
	if e.closed = e.one(8); e.closed {
		e.at("close", func() {
			if err := e.c.Close(); err != nil {
				e.Error(err)
			}
		})
	}
}

// endHold takes a lock, lets what may end its holds happen at random moments, and checks that no
// znode is left and that the end of each acquisition is reported once.
func endHold(t *testing.T, seed uint64) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		e := &ending{Sim: s, rnd: rand.New(rand.NewPCG(seed, 61)), dirs: dirs(s, 3),
			began: map[uint64]int{}, ended: map[uint64]int{}}
		count := func(in map[uint64]int, call uint64) {
			e.mu.Lock()
			defer e.mu.Unlock()
			in[call]++
		}
		e.c = s.Client(zklock.WithHooks(zklock.Hooks{
			Acquired: func(i zklock.LockInfo) {
				if i.Joined == 0 {
					count(e.began, i.Call)
				}
			},
			Released: func(i zklock.LockInfo) { count(e.ended, i.Call) },
			Lost:     func(i zklock.LockInfo) { count(e.ended, i.Call) },
		}))
		s.Server.Inject(fault.Delay(time.Duration(e.rnd.IntN(5000)) * time.Microsecond))
		s.Server.Inject(fault.DelayReply(time.Duration(e.rnd.IntN(5000)) * time.Microsecond))
		var opts []zklock.LockOption
		limited := e.one(2)
		if limited {
			opts = append(opts,
				zklock.WithMaxHold(time.Duration(1+e.rnd.IntN(30_000))*time.Microsecond))
		}
		holds := e.acquire(opts)
		hangs := limited && e.one(3) // there is no Unlock: the maximum has to end it
		e.note("limited %v, hangs %v", limited, hangs)
		e.disturb(holds)
		if !hangs {
			// In order: each unlock draws its moment, and a seed has to draw the same each time.
			for _, name := range slices.Sorted(maps.Keys(holds)) {
				e.unlock(name, holds[name])
			}
		}
		e.all.Wait()
		limit := 3 * time.Second // less than the session timeout: the client deletes them itself
		if e.closed {
			limit = 30 * time.Second // without a connection the session's end has to free it
		}
		s.Until(limit, "no znode is left, and the end of each acquisition is reported; done were: "+
			strings.Join(e.log, ", "),
			func() bool {
				for _, dir := range e.dirs {
					if len(locktest.Contenders(s.Server.Children(dir))) > 0 {
						return false
					}
				}
				e.mu.Lock()
				defer e.mu.Unlock()
				return maps.Equal(e.began, e.ended)
			})
		require.NoError(s, e.c.Close())
		require.Equal(s, e.began, e.ended, "what was acquired was released or lost, once")
	})
}

// In whichever order an Unlock, the loss of a znode, WithMaxHold, the session's end and the
// Client's Close end a hold, all its znodes are deleted, and its end is reported once (scenario
// 61).
func TestAllZnodesOfAHoldGoWhateverEndsIt(t *testing.T) {
	runs := uint64(400)
	if locktest.Long() {
		runs = 20_000
	}
	locktest.EachSeed(t, runs, endHold)
}

func TestAHoldThatHasEndedSaysWhyAndAsksNothing(t *testing.T) {
	for name, k := range map[string]struct {
		end  func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold)
		want error
		lost bool
	}{
		"unlocked": {func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) {
			s.Unlock(h)
		}, zklock.ErrUnlocked, false},
		"closed": {func(s *locktest.Sim, c *locktest.Client, _ *zklock.Hold) {
			require.NoError(s, c.Close())
		}, zklock.ErrClosed, false},
		"held for too long": {func(_ *locktest.Sim, _ *locktest.Client, h *zklock.Hold) {
			<-h.Context().Done()
		},
			zklock.ErrMaxHold, true},
		"session expired": {func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			require.NoError(s, s.Server.Expire(c.SessionID()))
			<-h.Context().Done()
		}, zklock.ErrSessionExpired, true},
		"znode deleted": {func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) {
			time.Sleep(time.Second) // until it is watched
			require.NoError(s, s.Server.Delete(h.Node()))
			<-h.Context().Done()
		}, zklock.ErrNodeDeleted, true},
		"nothing heard": {func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) {
			s.Server.Leader().Down()
			<-h.Context().Done()
		}, zklock.ErrLeaseExpired, true},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				e := c.Election(s.Dir("/l"), zklock.WithMaxHold(time.Hour))
				_, l, err := e.Campaign(s.Context(), []byte("v"))
				require.NoError(s, err)
				token, node := l.Token(), l.Node()
				k.end(s, c, l)

				require.ErrorIs(s, l.Err(), k.want)
				require.Equal(s, l.Err(), context.Cause(l.Context()))
				// until the requests that the end has caused, perhaps a deletion, have been sent
				synctest.Wait()
				asked := s.Server.Requests()
				_, multiErr := l.Multi(s.Context(),
					session.OpCreate{Path: "/done", ACL: zk.WorldACL(zk.PermAll)})
				for op, err := range map[string]error{"check": l.Check(s.Context()),
					"multi": multiErr, "proclaim": e.Proclaim(s.Context(), l, []byte("w"))} {
					require.ErrorIs(s, err, k.want, op)
					require.ErrorContains(s, err, "zklock: "+op+" /l: ")
					require.Equal(s, k.lost, errors.Is(err, zklock.ErrLost), "%s: %v", op, err)
					require.NotErrorIs(s, err, zklock.ErrUnknownOutcome, op)
				}
				require.Equal(s, asked, s.Server.Requests(), "they are answered without a request")
				require.Equal(s, token, l.Token())
				require.Equal(s, node, l.Node())
			})
		})
	}
}

// After a stop of the process (here: nothing reads the clock until the lease has expired) the
// notification of the deletion by the session's end may come first. The cause is the lease all the
// same.
func TestAfterTheLeaseTheCauseIsTheLease(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		h := s.Lock(c.Mutex("/l"))
		askedAt(s, c, h, func() bool {
			zklock.HeardGone(h)
			return errors.Is(h.Err(), zklock.ErrLeaseExpired)
		})
	})
}

// As above, when WithMaxHold's time is over and Guard has not reported the lease's end: the hook is
// told the same cause as the holder.
func TestWhenTheLeaseAndTheMaximumAreOverTheCauseIsTheLease(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		told := make(chan error, 1)
		c := s.Client(zklock.WithHooks(zklock.Hooks{
			Lost: func(i zklock.LockInfo) { told <- i.Err },
		}))
		h := s.Lock(c.Mutex("/l", zklock.WithMaxHold(time.Hour)))
		askedAt(s, c, h, func() bool {
			zklock.Expire(h)
			return errors.Is(h.Err(), zklock.ErrLeaseExpired)
		})
		require.Equal(s, h.Err(), <-told)
	})
}

// slowToForget is a context that takes its time to forget a child, as Unlock asks it to.
type slowToForget struct {
	context.Context
	slow *atomic.Bool // from then on
}

func (slowToForget) Value(any) any { return nil } // so package context asks AfterFunc

func (c slowToForget) AfterFunc(f func()) func() bool {
	stop := context.AfterFunc(c.Context, f)
	return func() bool {
		if c.slow.Load() {
			time.Sleep(2 * time.Second)
		}
		return stop()
	}
}

// WithMaxHold's time may be over while Unlock is under way. The hold was released by then: no hook
// is told of a loss that Unlock does not return.
func TestAHoldWhoseMaximumIsOverDuringUnlockIsReleased(t *testing.T) {
	for name, opts := range map[string][]zklock.LockOption{
		"alone":     {zklock.WithMaxHold(time.Second)},
		"handed on": {zklock.WithMaxHold(time.Second), zklock.WithLocalHandoff()},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				var events []string
				note := func(name string) func(zklock.LockInfo) {
					return func(i zklock.LockInfo) {
						events = append(events, fmt.Sprintf("%s: %v", name, i.Err))
					}
				}
				c := s.Client(zklock.WithHooks(zklock.Hooks{
					Released: note("released"), Lost: note("lost"),
				}))
				base, cancel := context.WithCancel(s.Context())
				defer cancel()
				ctx := slowToForget{base, &atomic.Bool{}}
				_, h, err := c.Mutex("/l", opts...).Lock(ctx)
				require.NoError(s, err)
				ctx.slow.Store(true)

				require.NoError(s, h.Unlock())

				synctest.Wait()
				require.ErrorIs(s, h.Err(), zklock.ErrUnlocked)
				require.Equal(s, []string{"released: <nil>"}, events)
				s.Empty(time.Second, "/l")
			})
		})
	}
}

// So a call of a database, say, that gets the context knows how long it may take.
func TestTheContextOfAHoldWithAMaximumHasItAsItsDeadline(t *testing.T) {
	for name, opts := range map[string][]zklock.LockOption{
		"alone":     {zklock.WithMaxHold(time.Minute)},
		"handed on": {zklock.WithMaxHold(time.Minute), zklock.WithLocalHandoff()},
		"joined":    {zklock.WithMaxHold(time.Minute), zklock.WithReentrancy()},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				slow := zklock.Hooks{Acquired: func(zklock.LockInfo) { time.Sleep(time.Second) }}
				c := s.Client(zklock.WithHooks(slow))
				m := c.Mutex("/l", opts...)
				h := s.Lock(m)
				// the hook's time is the hold's, too
				want := time.Now().Add(time.Minute - time.Second)
				if name == "joined" {
					time.Sleep(time.Second)
					var err error
					_, h, err = m.Lock(h.Context())
					require.NoError(s, err)
				}
				short, cancel := context.WithTimeout(h.Context(), time.Hour)
				defer cancel()
				for _, ctx := range []context.Context{h.Context(), short} {
					deadline, ok := ctx.Deadline()
					require.True(s, ok)
					require.Equal(s, want, deadline)
				}
				<-short.Done()
				require.Equal(s, want, time.Now())
				require.ErrorIs(s, context.Cause(short), zklock.ErrMaxHold)
				_, ok := s.Lock(c.Mutex("/none")).Context().Deadline()
				require.False(s, ok)
			})
		})
	}
}
