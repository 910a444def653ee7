package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// What the caller of Do learns of its work.

// kindsOfDo are the ways of having a function called under a lock.
func kindsOfDo(c *locktest.Client, dirs []string) map[string]func(context.Context, func(context.Context) error) error {
	return map[string]func(context.Context, func(context.Context) error) error{
		"mutex":   c.Mutex(dirs[0]).Do,
		"handoff": c.Mutex(dirs[0], zklock.WithLocalHandoff(2)).Do,
		"delay":   c.Mutex(dirs[0], zklock.WithLockDelay(time.Millisecond)).Do,
		"write":   c.RWMutex(dirs[0]).Do,
		"read":    c.RWMutex(dirs[0]).RDo,
		"multi":   c.MultiLock(dirs).Do,
		"semaphore": func(ctx context.Context, fn func(context.Context) error) error {
			return c.Semaphore(dirs[0], 1).Do(ctx, 1, fn)
		},
		"guard": func(ctx context.Context, fn func(context.Context) error) error {
			_, err := zklock.Guard(c.Client, func(dir string) (string, error) { return dir, nil },
				func(ctx context.Context, _ string) (int, error) { return 0, fn(ctx) })(ctx, dirs[0])
			return err
		},
	}
}

// Scenario 64: the work ended while the lock was held, and the release fails, in whichever way: the result is the work's,
// it comes within a tenth of the session timeout, at once if no server is connected, and the lock is free as soon as the
// ensemble can be reached.
func TestScenario64_WorkThatIsDoneIsNotReportedAsFailed(t *testing.T) {
	for name, k := range map[string]struct {
		spoil  func(s *locktest.Sim, c *locktest.Client) (mend func())
		within time.Duration
	}{
		"nothing goes wrong": {func(*locktest.Sim, *locktest.Client) func() { return func() {} }, 0},
		"the server is away": {func(s *locktest.Sim, _ *locktest.Client) func() {
			s.Server.Leader().Down()
			synctest.Wait()
			return s.Server.Leader().Up
		}, 0},
		"no reply comes": {func(s *locktest.Sim, c *locktest.Client) func() {
			return s.Server.Inject(zktest.FreezeReplies().Session(c.SessionID())).Remove
		}, time.Second},
		"the release is stuck": {func(s *locktest.Sim, c *locktest.Client) func() {
			return s.Server.Inject(zktest.Hold().Op(zktest.OpDelete, zktest.OpMulti).Session(c.SessionID())).Remove
		}, time.Second},
		"the release breaks the connection": {func(s *locktest.Sim, c *locktest.Client) func() {
			away := s.Server.Inject(zktest.Refuse())
			s.Server.Inject(zktest.CloseBefore().Op(zktest.OpDelete, zktest.OpMulti).Session(c.SessionID()).Once())
			return away.Remove
		}, time.Second},
		"the release is refused": {func(s *locktest.Sim, c *locktest.Client) func() {
			return s.Server.Inject(zktest.Answer(zktest.CodeMarshallingError).Op(zktest.OpDelete, zktest.OpMulti).Session(c.SessionID())).Remove
		}, time.Second},
		"the session expires at the release": {func(s *locktest.Sim, c *locktest.Client) func() {
			s.Server.Inject(zktest.ExpireSession().Op(zktest.OpDelete, zktest.OpMulti).Session(c.SessionID()).Once())
			return func() {}
		}, time.Second},
	} {
		for kind := range kindsOfDo(&locktest.Client{Client: nil}, []string{"/m/a", "/m/b"}) {
			t.Run(name+", "+kind, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					var c *locktest.Client
					released := make(chan error, 1)
					c = s.Client(zklock.WithHooks(zklock.Hooks{Released: func(i zklock.ReleasedInfo) { released <- i.Err }}))
					dirs := dirs(s, 2)
					done := make(chan time.Time, 1)
					var mend func()
					err := kindsOfDo(c, dirs)[kind](s.Context(), func(ctx context.Context) error {
						mend = k.spoil(s, c)
						require.NoError(s, ctx.Err())
						done <- time.Now()
						return nil
					})
					require.NoError(s, err, "it was done")
					require.LessOrEqual(s, time.Since(<-done), k.within)
					why := <-released
					if name == "nothing goes wrong" {
						require.NoError(s, why)
						emptyAll(s, 0, dirs)
					} else {
						require.Error(s, why)
					}
					mend()
					emptyAll(s, 5*time.Second, dirs)

					errWork := errors.New("the work's own")
					require.Equal(s, errWork, kindsOfDo(c, dirs)[kind](s.Context(), func(context.Context) error { return errWork }), "as it is")
				})
			})
		}
	}
}

// Not run, run and lost, run and held: errors.Is tells them apart (scenario 64).
func TestDosErrorTellsWhetherTheWorkWasRunAndHeld(t *testing.T) {
	for kind := range kindsOfDo(&locktest.Client{}, []string{"/m/a", "/m/b"}) {
		t.Run(kind, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c, other, dirs := s.Client(), s.Client(), dirs(s, 2)
				do := kindsOfDo(c, dirs)[kind]
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

				// run and lost: noticed by the work, or found at the release
				for _, notice := range []bool{true, false} {
					errWork := errors.New("the work's own")
					err = do(s.Context(), func(ctx context.Context) error {
						time.Sleep(time.Second)
						if !notice { // the word of it does not arrive
							s.Server.Inject(zktest.DropReply().Op(zktest.OpNotify).Session(c.SessionID()).Once())
						}
						hold, _ := zklock.HoldFrom(ctx)
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

				// run and held, whatever a Do inside of it met
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
