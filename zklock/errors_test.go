package zklock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// As with errgroup.WithContext: the cause of the context is the error of other work, which is an answer of ZooKeeper. It says nothing
// about the lock.
var causes = []error{zk.ErrNoNode, zk.ErrBadVersion, zk.ErrNodeExists, zk.ErrNoAuth, zklock.ErrUnknownOutcome}

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
		require.ErrorIs(s, h.Check(ended(cause)), context.Canceled)
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

// A cause that is no answer of the ensemble is found in the error.
func TestTheCauseOfAContextIsFoundInTheError(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		own := fmt.Errorf("the program stops")
		ctx, cancel := context.WithCancelCause(s.Context())
		cancel(own)
		_, _, err := s.Client().Mutex("/l").Lock(ctx)
		require.ErrorIs(s, err, own)
		require.ErrorIs(s, err, context.Canceled)
	})
}
