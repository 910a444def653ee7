package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// As with errgroup.WithContext: the cause of the context is the error of other work, which is an
// answer of ZooKeeper or the loss of another lock. It says nothing about this one.
var causes = []error{zk.ErrNoNode, zk.ErrBadVersion, zk.ErrNodeExists, zk.ErrNoAuth,
	zklock.ErrUnknownOutcome, zklock.ErrClosed,
	zklock.ErrSessionExpired, zklock.ErrBusy, zklock.ErrNoLeader, errors.Join(zklock.ErrNodeDeleted,
		zk.ErrNoNode)}

func withCause(cause error) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	return ctx, func() { cancel(fmt.Errorf("read /config: %w", cause)) }
}

func ended(cause error) context.Context {
	ctx, end := withCause(cause)
	end()
	return ctx
}

// free requires that another client gets the lock, long before c's session could end.
func free(s *locktest.Sim, path string) {
	s.Helper()
	c := s.Client()
	ctx, done := context.WithTimeout(s.Context(), 5*time.Second)
	defer done()
	_, h, err := c.Mutex(path).Lock(ctx)
	require.NoError(s, err, "nobody else holds or wants %s", path)
	s.Unlock(h)
}

// endedCalls are calls whose context ends with a cause.
var endedCalls = map[string]func(s *locktest.Sim, c *locktest.Client, cause error){
	"wait": func(s *locktest.Sim, c *locktest.Client, cause error) {
		h := s.Lock(s.Client().Mutex("/l"))
		ctx, end := withCause(cause)
		call := locktest.Go(ctx, c.Mutex("/l").Lock)
		time.Sleep(time.Second)
		end()
		<-call.Done
		require.ErrorIs(s, call.Err, context.Canceled)
		s.Unlock(h)
		free(s, "/l")
	},
	"create in flight": func(s *locktest.Sim, c *locktest.Client, cause error) {
		s.Unlock(s.Lock(s.Client().Mutex("/l")))
		in := s.Server.Inject(fault.Hold().Op(fault.OpCreate).Session(c.SessionID()))
		ctx, end := withCause(cause)
		call := locktest.Go(ctx, c.Mutex("/l").Lock)
		time.Sleep(100 * time.Millisecond)
		end()
		<-call.Done
		require.ErrorIs(s, call.Err, context.Canceled)
		in.Remove()
		free(s, "/l")
	},
	"check": func(s *locktest.Sim, c *locktest.Client, cause error) {
		h := s.Lock(c.Mutex("/l"))
		err := h.Check(ended(cause))
		require.ErrorIs(s, err, context.Canceled)
		require.NotErrorIs(s, err, zklock.ErrLost)
		require.NoError(s, h.Err())
		s.Unlock(h)
	},
	"proclaim": func(s *locktest.Sim, c *locktest.Client, cause error) {
		e := c.Election("/e")
		_, l, err := e.Campaign(s.Context(), nil)
		require.NoError(s, err)
		require.ErrorIs(s, e.Proclaim(ended(cause), l, []byte("x")), context.Canceled)
		require.NoError(s, l.Err())
	},
	"queue": func(s *locktest.Sim, c *locktest.Client, cause error) {
		h := s.Lock(c.Mutex("/l"))
		in := s.Server.Inject(fault.Hold().Op(fault.OpGetChildren2))
		ctx, end := withCause(cause)
		time.AfterFunc(100*time.Millisecond, end)
		_, err := locktest.Queue(ctx, c.Client, "/l")
		require.ErrorIs(s, err, context.Canceled)
		in.Remove()
		s.Unlock(h)
	},
	"create in flight, with the directory": func(s *locktest.Sim, c *locktest.Client, cause error) {
		in := s.Server.Inject(fault.HoldReply().Op(fault.OpMulti).Session(c.SessionID()).Once())
		ctx, end := withCause(cause)
		time.AfterFunc(100*time.Millisecond, end)
		_, _, err := c.Mutex("/l").Lock(ctx)
		require.ErrorIs(s, err, context.Canceled)
		in.Remove()
		free(s, "/l")
	},
	"try": func(s *locktest.Sim, c *locktest.Client, cause error) {
		_, err := c.Mutex("/l").TryDo(ended(cause), func(context.Context) error { return nil })
		require.ErrorIs(s, err, context.Canceled)
		require.ErrorContains(s, err, "context canceled (read /config: ", "its text is told")
	},
	"reads": func(s *locktest.Sim, c *locktest.Client, cause error) {
		_, err := c.Job("/j").Once(s.Context(), "k", func(context.Context) error { return nil })
		require.NoError(s, err)
		s.Take(locktest.Permits(c.Semaphore("/s", 5), 3))
		s.Take(locktest.Campaign(c.Election("/e"), "v"))
		in := s.Server.Inject(fault.Hold().Op(fault.OpGetChildren2, fault.OpGetData,
			fault.OpExists))
		for name, read := range map[string]func(ctx context.Context) error{
			"forget": func(ctx context.Context) error {
				_, err := c.Job("/j").Forget(ctx, "k")
				return err
			},
			"older": func(ctx context.Context) error {
				_, err := c.Job("/j").ForgetBefore(ctx, time.Now())
				return err
			},
			"size": func(ctx context.Context) error {
				_, _, err := c.Semaphore("/s", 9).Size(ctx)
				return err
			},
			"leader": func(ctx context.Context) error {
				_, err := c.Election("/e").Leader(ctx)
				return err
			},
		} {
			ctx, end := withCause(cause)
			time.AfterFunc(100*time.Millisecond, end)
			require.ErrorIs(s, read(ctx), context.Canceled, name)
		}
		in.Remove()
	},
	"create a directory": func(s *locktest.Sim, c *locktest.Client, cause error) {
		err := c.Current().CreateAll(ended(cause), "/made", nil, 0, zk.WorldACL(zk.PermAll))
		require.ErrorIs(s, err, context.Canceled)
	},
}

func TestTheCauseOfAContextIsNotTakenForAnAnswer(t *testing.T) {
	for _, cause := range causes {
		for name, f := range endedCalls {
			t.Run(name+"/"+cause.Error(), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) { f(s, s.Client(), cause) })
			})
		}
	}
}

// What a dialer answers is not what the ensemble answers: no znode is gone.
func TestADialersErrorIsNotTakenForAnAnswer(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		var away atomic.Bool
		c, err := zklock.Dial(s.Context(), s.Server.Addr(),
			zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
				if away.Load() {
					return nil, fmt.Errorf("discovery: %w", zk.ErrNoNode)
				}
				return s.Server.Dial(network, addr, d)
			}))
		require.NoError(s, err)
		defer c.Close()
		away.Store(true)
		s.Server.Leader().DropConnections()
		_, err = c.Job("/j").Forget(s.Context(), "k")
		require.ErrorIs(s, err, zklock.ErrUnreachable)
		require.NotErrorIs(s, err, zk.ErrNoNode)
		require.ErrorContains(s, err, "discovery: ")
	})
}

func TestADialerThatReturnsNothingIsAnError(t *testing.T) {
	_, err := zklock.Dial(locktest.Within(t, 100*time.Millisecond), "zk1:2181",
		zklock.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
			return nil, nil
		}))
	require.ErrorContains(t, err, "the dialer has returned no connection, and no error")
}

// An error may be compared, as errors.Is does.
func TestAnErrorThatHidesAnotherCanBeCompared(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Lock(s.Client().Mutex("/held"))
		c := s.Client()
		err := c.Mutex("/l").Do(s.Context(), func(ctx context.Context) error {
			return c.Mutex("/held", zklock.WithMaxWait(time.Second)).Do(ctx,
				func(context.Context) error { return nil })
		})
		require.NotErrorIs(s, err, zklock.ErrNotRun)
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.ErrorIs(s, err, err)
	})
}
