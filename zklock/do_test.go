package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

var errOwn = errors.New("the work's own error")

func TestDoReleasesWhenItsFunctionPanics(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		m := locktest.Dial(t, srv).Mutex("/l")
		require.PanicsWithValue(t, "oh", func() {
			_ = m.Do(locktest.Soon(t), func(context.Context) error { panic("oh") })
		})
		require.Empty(t, srv.Children("/l"))
		require.NoError(t, m.Do(locktest.Soon(t), func(context.Context) error { return nil }))
	})
}

func TestDosContextEndsWithTheCallersAndTheLockIsReleasedAfterwards(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		m := locktest.Dial(t, srv).Mutex("/l")
		ctx, cancel := context.WithCancelCause(context.Background())
		err := m.Do(ctx, func(ctx context.Context) error {
			cancel(errOwn)
			<-ctx.Done()
			require.Equal(t, errOwn, context.Cause(ctx))
			require.Len(t, srv.Children("/l"), 1, "held until the function has returned")
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, zklock.ErrLost)
		require.Empty(t, srv.Children("/l"))

		start := time.Now()
		err = m.Do(locktest.Within(t, 5*time.Second), func(ctx context.Context) error {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, start.Add(5*time.Second), deadline)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, srv.Children("/l"))
	})
}

func TestMultiCommitsOnlyWhileTheLockIsHeld(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/counter", []byte("0")))
		c := locktest.Dial(t, srv)
		h := locktest.Lock(t, c.Mutex("/l"))
		acl := session.WorldACL()
		resps, err := h.Multi(locktest.Soon(t),
			session.OpSet{Path: "/counter", Data: []byte("1"),
				Version: 0}, session.OpCreate{Path: "/made", ACL: acl})
		require.NoError(t, err)
		require.Len(t, resps, 2, "one for each operation, without the guard's")
		require.EqualValues(t, 1, resps[0].Stat.Version)
		require.Equal(t, "/made", resps[1].String)

		resps, err = h.Multi(locktest.Soon(t),
			session.OpCreate{Path: "/other", ACL: acl}, session.OpSet{Path: "/counter",
				Data: []byte("x"), Version: 0})
		require.ErrorIs(t, err, zk.ErrBadVersion)
		require.NotErrorIs(t, err, zklock.ErrLost)
		require.Len(t, resps, 2)
		require.NoError(t, resps[0].Error)
		require.ErrorIs(t, resps[1].Error, zk.ErrBadVersion)
		require.NoError(t, h.Err(), "the lock is not lost by a refusal")
		_, there := srv.Node("/other")
		require.False(t, there)

		_, err = h.Multi(locktest.Soon(t), session.OpDelete{Path: "/not/there", Version: -1})
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.NotErrorIs(t, err, zklock.ErrLost, "the operation's own answer")
		require.NoError(t, h.Err())
		_, err = h.Multi(locktest.Soon(t), session.Op(nil))
		require.Error(t, err)
		resps, err = h.Multi(locktest.Soon(t))
		require.NoError(t, err, "a guard alone")
		require.Empty(t, resps)

		require.NoError(t, srv.Delete(h.Node())) // not noticed yet
		_, err = h.Multi(locktest.Soon(t),
			session.OpSet{Path: "/counter", Data: []byte("2"), Version: -1})
		require.ErrorIs(t, err, zklock.ErrLost)
		require.ErrorIs(t, err, zklock.ErrNodeDeleted)
		node, _ := srv.Node("/counter")
		require.Equal(t, []byte("1"), node.Data, "nothing was written without the lock")
		require.ErrorIs(t, h.Err(), zklock.ErrNodeDeleted, "and the hold knows")
	})
}

// Tests of what the error of Do says about the work.

// doCall is a call that runs a function under a lock.
type doCall func(context.Context, func(context.Context) error) error

// kindsOfDo return a client's calls for a lock at the first of two directories, or at both.
var kindsOfDo = map[string]func(c *locktest.Client, dirs []string) doCall{
	"mutex": func(c *locktest.Client, dirs []string) doCall {
		return c.Mutex(dirs[0]).Do
	},
	"handoff": func(c *locktest.Client, dirs []string) doCall {
		return c.Mutex(dirs[0], zklock.WithLocalHandoff()).Do
	},
	"write": func(c *locktest.Client, dirs []string) doCall {
		return c.RWMutex(dirs[0]).Do
	},
	"read": func(c *locktest.Client, dirs []string) doCall {
		return c.RWMutex(dirs[0]).RDo
	},
	"multi": func(c *locktest.Client, dirs []string) doCall {
		return c.MultiLock(dirs).Do
	},
	"semaphore": func(c *locktest.Client, dirs []string) doCall {
		return func(ctx context.Context, fn func(context.Context) error) error {
			return c.Semaphore(dirs[0], 1).Do(ctx, 1, fn)
		}
	},
}

// Scenario 64: the work ends while the lock is held, and the release fails. The result is that of
// the work; it comes within a tenth of the session timeout, or at once if no server is connected;
// and the lock is free as soon as the ensemble can be reached.
func TestScenario64_WorkThatIsDoneIsNotReportedAsFailed(t *testing.T) {
	for name, k := range map[string]struct {
		spoil  func(s *locktest.Sim, c *locktest.Client) (mend func())
		within time.Duration
		fails  bool // the release
	}{
		"nothing goes wrong": {func(*locktest.Sim, *locktest.Client) func() {
			return func() {}
		}, 0, false},
		"the server is away": {func(s *locktest.Sim, _ *locktest.Client) func() {
			s.Server.Leader().Down()
			synctest.Wait()
			return s.Server.Leader().Up
		}, 0, true},
		"no reply comes": {func(s *locktest.Sim, c *locktest.Client) func() {
			return s.Server.Inject(fault.FreezeReplies().Session(c.SessionID())).Remove
		}, time.Second, true},
		"the release is stuck": {func(s *locktest.Sim, c *locktest.Client) func() {
			return s.Server.Inject(fault.Hold().Op(fault.OpDelete,
				fault.OpMulti).Session(c.SessionID())).Remove
		}, time.Second, true},
		"the release breaks the connection": {func(s *locktest.Sim, c *locktest.Client) func() {
			away := s.Server.Inject(fault.Refuse())
			s.Server.Inject(fault.CloseBefore().Op(fault.OpDelete,
				fault.OpMulti).Session(c.SessionID()).Once())
			return away.Remove
		}, time.Second, true},
		"the release is refused": {func(s *locktest.Sim, c *locktest.Client) func() {
			return s.Server.Inject(fault.Answer(fault.CodeMarshallingError).Op(fault.OpDelete,
				fault.OpMulti).Session(c.SessionID())).Remove
		}, time.Second, true},
		"the session expires at the release": {func(s *locktest.Sim, c *locktest.Client) func() {
			s.Server.Inject(fault.ExpireSession().Op(fault.OpDelete,
				fault.OpMulti).Session(c.SessionID()).Once())
			return func() {}
		}, time.Second, true},
	} {
		for kind, doOf := range kindsOfDo {
			t.Run(name+", "+kind, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					released := make(chan error, 1)
					c := s.Client(zklock.WithHooks(zklock.Hooks{Released: func(i zklock.LockInfo) {
						released <- i.Err
					}}))
					dirs := dirs(s, 2)
					do := doOf(c, dirs)
					done := make(chan time.Time, 1)
					var mend func()
					err := do(s.Context(), func(ctx context.Context) error {
						mend = k.spoil(s, c)
						require.NoError(s, ctx.Err())
						done <- time.Now()
						return nil
					})
					require.NoError(s, err, "it was done")
					require.LessOrEqual(s, time.Since(<-done), k.within)
					why := <-released
					if k.fails {
						require.Error(s, why)
					} else {
						require.NoError(s, why)
						emptyAll(s, 0, dirs)
					}
					mend()
					emptyAll(s, 5*time.Second, dirs)

					errWork := errors.New("the work's own")
					work := func(context.Context) error { return errWork }
					require.Equal(s, errWork, do(s.Context(), work), "as it is")
				})
			})
		}
	}
}

// errors.Is distinguishes: not run; run, and the lock lost; run, and the lock held (scenario 64).
func TestDosErrorTellsWhetherTheWorkWasRunAndHeld(t *testing.T) {
	for kind, doOf := range kindsOfDo {
		t.Run(kind, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c, other, dirs := s.Client(), s.Client(), dirs(s, 2)
				do := doOf(c, dirs)
				ran := 0
				work := func(context.Context) error { ran++; return nil }

				var h *zklock.Hold
				switch kind {
				case "write", "read":
					h = s.Take(other.RWMutex(dirs[0]).Lock)
				case "semaphore":
					h = s.Take(locktest.Permits(other.Semaphore(dirs[0], 1), 1))
				default:
					h = s.Lock(other.Mutex(dirs[0]))
				}
				ctx, cancel := context.WithTimeout(s.Context(), time.Second)
				defer cancel()
				err := do(ctx, work)
				require.ErrorIs(s, err, zklock.ErrNotRun)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.NotContains(s, err.Error(), "not run", "the reason says it")
				s.Unlock(h)
				require.Zero(s, ran)

				// run, and lost: noticed by the work, or found at the release
				for _, notice := range []bool{true, false} {
					errWork := errors.New("the work's own")
					err = do(s.Context(), func(ctx context.Context) error {
						time.Sleep(time.Second)
						if !notice { // the notification does not arrive
							s.Server.Inject(
								fault.DropReply().Op(fault.OpNotify).Session(c.SessionID()).Once())
						}
						hold, _ := zklock.HoldFrom(ctx, dirs[0])
						require.NoError(s, s.Server.Delete(hold.Node()))
						if notice {
							<-ctx.Done()
						} else {
							require.NoError(s, ctx.Err())
						}
						return errWork
					})
					require.ErrorIs(s, err, zklock.ErrLost)
					require.ErrorIs(s, err, zklock.ErrNodeDeleted)
					require.ErrorIs(s, err, errWork)
					require.NotErrorIs(s, err, zklock.ErrNotRun)
					emptyAll(s, time.Second, dirs)
				}

				// run, and held, whatever error a Do inside it returned
				err = do(s.Context(), func(ctx context.Context) error {
					over, end := context.WithCancel(ctx)
					end()
					inner := c.Mutex("/inner").Do(over, work)
					require.ErrorIs(s, inner, zklock.ErrNotRun)
					return inner
				})
				require.ErrorIs(s, err, context.Canceled)
				require.NotErrorIs(s, err, zklock.ErrNotRun, "the outer function was called")
				require.NotErrorIs(s, err, zklock.ErrLost)
				require.Zero(s, ran)

				require.NoError(s, c.Close())
				require.ErrorIs(s, do(s.Context(), work), zklock.ErrNotRun)
			})
		})
	}
}
