package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// diary records the calls of the hooks.
type diary struct {
	mu    sync.Mutex
	lines []string
	infos []any

	latest map[string]any // by name
}

func (d *diary) write(name string, info any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, name)
	d.infos = append(d.infos, info)
	if d.latest == nil {
		d.latest = map[string]any{}
	}
	d.latest[name] = info
}

func (d *diary) read() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

// last returns what the last event of that name was told with.
func (d *diary) last(name string) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest[name]
}

func (d *diary) lastLock(name string) zklock.LockInfo { return d.last(name).(zklock.LockInfo) }

func (d *diary) hooks() zklock.Hooks {
	return zklock.Hooks{
		Session:  func(i session.Change) { d.write("session "+i.State.String(), i) },
		Asked:    func(i zklock.LockInfo) { d.write("asked", i) },
		Queued:   func(i zklock.LockInfo) { d.write(fmt.Sprintf("queued %d", i.Ahead), i) },
		Acquired: func(i zklock.LockInfo) { d.write("acquired", i) },
		Failed:   func(i zklock.LockInfo) { d.write("failed", i) },
		Released: func(i zklock.LockInfo) { d.write("released", i) },
		Lost:     func(i zklock.LockInfo) { d.write("lost", i) },
		Retried:  func(i zklock.LockInfo) { d.write("retried", i) },
	}
}

func TestHooksAreToldWhatHappensInOrder(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var d diary
		c, other := locktest.Dial(t, srv, zklock.WithHooks(d.hooks())), locktest.Dial(t, srv)
		require.Equal(t, []string{"session connected"}, d.read())
		s, err := unsealed.Session(locktest.Soon(t), c)
		require.NoError(t, err)
		require.Equal(t,
			session.Change{State: session.Connected, ID: s.ID(), Addr: srv.Addr(),
				Timeout: s.Timeout()}, d.last("session connected"))

		m := c.Mutex("/l", zklock.WithOwner("me"))
		info := zklock.LockInfo{Path: "/l", Kind: "mutex", Owner: "me"}
		h := locktest.Lock(t, m)
		require.Equal(t, []string{"asked", "acquired"}, d.read())
		asked := d.lastLock("asked")
		require.Positive(t, asked.Call)
		info.Call, info.Context = asked.Call, asked.Context
		require.Equal(t, info, asked)
		info.Token, info.Node = h.Token(), h.Node()
		require.Equal(t, info, d.lastLock("acquired"))
		time.Sleep(time.Minute)
		locktest.Unlock(t, h)
		require.Equal(t, []string{"released"}, d.read())
		info.Held = time.Minute
		require.Equal(t, info, d.lastLock("released"))

		theirs := locktest.Lock(t, other.Mutex("/l", zklock.WithOwner("they")))
		_, _, err = m.TryLock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrBusy)
		require.Equal(t, []string{"asked", "failed"}, d.read())
		require.True(t, d.lastLock("failed").Try)
		require.Equal(t, err, d.lastLock("failed").Err)
		locktest.Unlock(t, theirs)

		h = locktest.Lock(t, m)
		time.Sleep(time.Second)
		require.NoError(t, srv.Delete(h.Node()))
		require.Equal(t, []string{"asked", "acquired", "lost"}, d.read())
		asked = d.lastLock("asked")
		require.Greater(t, asked.Call, info.Call)
		info = asked
		info.Token, info.Node = h.Token(), h.Node()
		info.Held, info.Err = time.Second, zklock.ErrNodeDeleted
		require.Equal(t, info, d.lastLock("lost"))
		require.ErrorIs(t, h.Unlock(), zklock.ErrLost)
		require.Empty(t, d.read(), "a lost lock is not released")
	})
}

func TestHooksAreToldOfTheEndOfASessionAndOfWhatIsMadeAgain(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var d diary
		holder, c := locktest.Dial(t, srv), locktest.Dial(t, srv, zklock.WithHooks(d.hooks()))
		theirs := locktest.Lock(t, holder.Mutex("/l"))
		got := make(chan *zklock.Hold, 1)
		go func() { got <- locktest.Lock(t, c.Mutex("/l")) }()
		time.Sleep(5 * time.Second)
		s, err := unsealed.Session(locktest.Soon(t), c)
		require.NoError(t, err)
		d.read()
		require.NoError(t, srv.Expire(s.ID()))
		srv.DropConnections()
		time.Sleep(5 * time.Second)
		events := d.read()
		for _, want := range []string{"session disconnected", "session over", "retried",
			"session connected", "queued 1"} {
			require.Contains(t, events, want)
		}
		// The server may report the deletion of the waiter's znode before it closes the connection:
		// either is a reason to queue again.
		again := d.lastLock("retried").Err
		require.True(t, errors.Is(again, zklock.ErrSessionExpired) ||
			errors.Is(again, queue.ErrGone), "%v", again)
		locktest.Unlock(t, theirs)
		h := <-got
		require.Equal(t, []string{"acquired"}, d.read())
		require.NoError(t, c.Close())
		require.Subset(t, []string{"lost", "session over"}, d.read(), "in whichever order")
		require.ErrorIs(t, d.lastLock("lost").Err, zklock.ErrClosed)
		require.ErrorIs(t, h.Err(), zklock.ErrClosed)
	})
}

func TestErrorsOfHoldsAreApart(t *testing.T) {
	ends := []error{zklock.ErrUnlocked, zklock.ErrSessionExpired, zklock.ErrLeaseExpired,
		zklock.ErrNodeDeleted, zklock.ErrMaxHold, zklock.ErrClosed}
	for i, a := range ends {
		for j, b := range ends {
			require.Equal(t, i == j, errors.Is(a, b), "%v, %v", a, b)
		}
		require.Equal(t, i > 0 && i < 5, errors.Is(a, zklock.ErrLost), "%v", a)
	}
}

// usersFunctions are the functions of the user's that run at each moment of a call: the options
// with which one calls oops.
func usersFunctions() map[string]func(oops func()) zklock.Option {
	hook := func(hooks func(oops func(zklock.LockInfo)) zklock.Hooks) func(func()) zklock.Option {
		return func(oops func()) zklock.Option {
			return zklock.WithHooks(hooks(func(zklock.LockInfo) { oops() }))
		}
	}
	logged := func(events ...string) func(func()) zklock.Option {
		return func(oops func()) zklock.Option {
			return zklock.WithLogger(slog.New(oopsHandler{slog.DiscardHandler, events, oops}))
		}
	}
	return map[string]func(oops func()) zklock.Option{
		"asked": hook(func(oops func(zklock.LockInfo)) zklock.Hooks {
			return zklock.Hooks{Asked: oops}
		}),
		"queued": hook(func(oops func(zklock.LockInfo)) zklock.Hooks {
			return zklock.Hooks{Queued: oops}
		}),
		"retried": hook(func(oops func(zklock.LockInfo)) zklock.Hooks {
			return zklock.Hooks{Retried: oops}
		}),
		"acquired": hook(func(oops func(zklock.LockInfo)) zklock.Hooks {
			return zklock.Hooks{Acquired: oops}
		}),
		"failed": hook(func(oops func(zklock.LockInfo)) zklock.Hooks {
			return zklock.Hooks{Failed: oops}
		}),
		"released": hook(func(oops func(zklock.LockInfo)) zklock.Hooks {
			return zklock.Hooks{Released: oops}
		}),
		"log asked":    logged("zklock: lock asked for"),
		"log queued":   logged("zklock: lock queued"),
		"log retried":  logged("zklock: lock step retried"),
		"log acquired": logged("zklock: lock acquired", "zklock: leadership won"),
		"log failed":   logged("zklock: lock not acquired"),
		"log released": logged("zklock: lock released", "zklock: leadership given up"),
	}
}

// oopsHandler is a log's handler that calls oops for some events.
type oopsHandler struct {
	slog.Handler
	events []string
	oops   func()
}

func (h oopsHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h oopsHandler) Handle(_ context.Context, r slog.Record) error {
	if slices.Contains(h.events, r.Message) {
		h.oops()
	}
	return nil
}

// Scenarios 70 and 93. A hook, or the log's handler, panics at each moment of a call, and the
// caller recovers, as net/http does for its handlers; or it ends its goroutine, as t.FailNow does.
func TestAUsersFunctionThatDoesNotReturnLeavesNoPlaceAndNoHold(t *testing.T) {
	const oops = "a metric is registered twice"
	ways := map[string]struct {
		oops func()
		says any // what the caller recovers
	}{
		"panics":             {func() { panic(oops) }, oops},
		"ends its goroutine": {runtime.Goexit, nil},
	}
	for event, option := range usersFunctions() {
		for way, w := range ways {
			for _, kind := range anyKinds {
				t.Run(event+" "+way+", "+kind.name, func(t *testing.T) {
					locktest.Simulate(t, func(s *locktest.Sim) {
						dir, other := s.Dir("/l"), s.Client()
						c := s.Client(option(w.oops))
						theirs := s.Take(kind.lock(other.Client, dir))
						goesOn, recovered := false, make(chan any, 1)
						go func() {
							defer func() { recovered <- recover() }()
							ctx := locktest.Within(s, time.Hour)
							if strings.Contains(event, "failed") {
								ctx = locktest.Within(s, time.Second)
							}
							if _, h, err := kind.lock(c.Client, dir)(ctx); err == nil {
								_ = h.Unlock()
							}
							goesOn = true
						}()
						time.Sleep(time.Minute)
						if strings.Contains(event, "retried") {
							require.NoError(s, s.Server.Expire(c.SessionID()))
						}
						time.Sleep(time.Minute)
						s.Unlock(theirs)
						require.Equal(s, w.says, <-recovered)
						require.False(s, goesOn, "the caller is ended in the same way")
						s.Empty(time.Minute, dir)
						require.Empty(s, c.Status().Waits)
						s.Unlock(s.Take(kind.lock(other.Client, dir)))
						require.NoError(s, c.Close())
					})
				})
			}
		}
	}
}

// Of a reentrant call only its own hold is given up.
func TestAPanicOfAHookLeavesTheHoldThatAReentrantCallCountsUp(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		calls := 0
		c := locktest.Dial(t, srv, zklock.WithHooks(zklock.Hooks{Acquired: func(zklock.LockInfo) {
			if calls++; calls == 2 {
				panic("oops")
			}
		}}))
		m := c.Mutex("/l", zklock.WithReentrancy())
		h := locktest.Lock(t, m)
		require.PanicsWithValue(t, "oops", func() { _, _, _ = m.Lock(h.Context()) })
		require.NoError(t, h.Err())
		locktest.Unlock(t, h)
		require.Empty(t, srv.Children("/l"))
	})
}

// A hook that panics in a call that then fails: the hooks beside it are told of the failure.
func TestAPanicOfAHookHidesNoFailureFromTheOthers(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, open := s.Dir("/l"), 0
		count := zklock.Hooks{Asked: func(zklock.LockInfo) { open++ },
			Failed: func(zklock.LockInfo) { open-- }}
		c := s.Client(zklock.WithHooks(zklock.Hooks{Queued: func(zklock.LockInfo) {
			panic("oops")
		}}), zklock.WithHooks(count))
		s.Take(s.Client().Mutex(dir).Lock)
		require.PanicsWithValue(s, "oops", func() {
			_, _, _ = c.Mutex(dir).Lock(locktest.Within(s, time.Second))
		})
		require.Zero(s, open)
	})
}

func TestAReleaseThatTheEnsembleRefusesIsLogged(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		var log strings.Builder
		c := s.Client(zklock.WithLogger(slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{Level: slog.LevelWarn}))))
		h := s.Take(c.Mutex("/l", zklock.WithACL(zk.WorldACL(zk.PermRead|zk.PermCreate)...)).Lock)
		require.ErrorIs(s, h.Unlock(), zk.ErrNoAuth)
		synctest.Wait()
		require.NoError(s, c.Close())
		require.Contains(s, log.String(), "own znode can't be deleted, so the lock stays taken")
	})
}

// What a hook or a reader of Status is given is its own.
func TestAHookThatChangesItsPathsChangesNoLock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		rename := func(i zklock.LockInfo) { clear(i.Paths) }
		c := s.Client(zklock.WithHooks(zklock.Hooks{Asked: rename, Acquired: rename,
			Released: rename}))
		m := c.MultiLock([]string{"/a", "/b"})
		h := s.Take(m.Lock)
		rename(c.Status().Holds[0])
		require.Equal(s, []string{"/a", "/b"}, c.Status().Holds[0].Paths)
		s.Unlock(h)
		s.Take(m.Lock)
		_, _, err := s.Client().Mutex("/a").TryLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
	})
}

// Scenario 70: a hook that is told of a loss takes its time, or locks again: nobody waits for it.
func TestScenario70_NobodyWaitsForAHookThatIsToldOfALoss(t *testing.T) {
	for _, opts := range [][]zklock.LockOption{nil, {zklock.WithLocalHandoff()}} {
		for name, lose := range map[string]func(s *locktest.Sim, c *locktest.Client,
			h *zklock.Hold){
			"max hold": func(*locktest.Sim, *locktest.Client, *zklock.Hold) {},
			"deleted": func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) {
				require.NoError(s, s.Server.Delete(h.Node()))
			},
			"expired": func(s *locktest.Sim, c *locktest.Client, _ *zklock.Hold) {
				require.NoError(s, s.Server.Expire(c.SessionID()))
			},
		} {
			t.Run(fmt.Sprint(name, len(opts)), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					var c *locktest.Client
					again, goOn := make(chan error, 1), make(chan struct{})
					c = s.Client(zklock.WithHooks(zklock.Hooks{Lost: func(zklock.LockInfo) {
						_, h, err := c.Mutex("/l", opts...).Lock(locktest.Within(s, time.Minute))
						if err == nil {
							err = h.Unlock()
						}
						again <- err
						<-goOn
					}}))
					h := s.Lock(c.Mutex("/l", append(opts, zklock.WithMaxHold(2*time.Second))...))
					time.Sleep(time.Second)
					lose(s, c, h)
					require.NoError(s, <-again)
					free(s, "/l")
					close(goOn)
				})
			})
		}
	}
}

// A log's handler that takes warnings alone, as slog's default often does, and does not return. It
// is called while the call waits.
func TestAWarningThatDoesNotReturnEndsTheWait(t *testing.T) {
	const node = "/l/_c_00000000-0000-4000-8000-000000000000-lock-0000000000"
	for name, oops := range map[string]func(){"panics": func() {
		panic("oops")
	}, "ends its goroutine": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				require.NoError(t, srv.Create("/l", nil))
				require.NoError(t, srv.Create(node, nil))
				c := locktest.Dial(t, srv,
					zklock.WithLogger(slog.New(warnHandler{slog.DiscardHandler, oops})))
				ended := make(chan any)
				began := time.Now()
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					_, _, _ = c.Mutex("/l").Lock(t.Context())
				}()
				<-ended
				require.Less(t, time.Since(began), time.Second)
				synctest.Wait()
				require.Len(t, srv.Children("/l"), 1, "the place was given up")
			})
		})
	}
}

// warnHandler is a log's handler that calls oops for each warning, and wants nothing else.
type warnHandler struct {
	slog.Handler
	oops func()
}

func (h warnHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (h warnHandler) Handle(context.Context, slog.Record) error {
	h.oops()
	return nil
}
