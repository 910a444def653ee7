package zklock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// As errgroup.WithContext does it: the context's cause is the error of something else that went on beside, and that
// error is an answer of ZooKeeper's. It says nothing about the lock.
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

// free demands that another client gets the lock, long before c's session could end.
func (s *sim) free(path string) {
	s.Helper()
	c := s.client()
	ctx, done := context.WithTimeout(s.Context(), 5*time.Second)
	defer done()
	h, err := c.Mutex(path).Lock(ctx)
	require.NoError(s, err, "nobody else holds or wants %s", path)
	s.unlock(h)
}

func TestTheCauseOfAContextIsNotTakenForAnAnswer(t *testing.T) {
	for _, cause := range causes {
		for name, f := range map[string]func(s *sim, c *simClient){
			"unlock": func(s *sim, c *simClient) {
				h := s.lock(c.Mutex("/l"))
				err := h.Unlock(ended(cause))
				require.ErrorIs(s, err, context.Canceled)
				require.NotErrorIs(s, err, zklock.ErrNodeDeleted)
				s.free("/l")
			},
			"unlock, local handoff": func(s *sim, c *simClient) {
				h := s.lock(c.Mutex("/l", zklock.WithLocalHandoff(5)))
				_ = h.Unlock(ended(cause)) // whatever it says, the place is given up
				s.free("/l")
			},
			"unlock, several paths": func(s *sim, c *simClient) {
				h := s.multiTake(c.MultiLock([]string{"/l", "/m"}))
				require.ErrorIs(s, h.Unlock(ended(cause)), context.Canceled)
				s.free("/l")
				s.free("/m")
			},
			"wait": func(s *sim, c *simClient) {
				h := s.lock(s.client().Mutex("/l"))
				ctx, end := withCause(cause)
				call := simGo(ctx, c.Mutex("/l").Lock)
				time.Sleep(time.Second)
				end()
				<-call.done
				require.ErrorIs(s, call.err, context.Canceled)
				s.unlock(h)
				s.free("/l")
			},
			"create in flight": func(s *sim, c *simClient) {
				s.unlock(s.lock(s.client().Mutex("/l")))
				in := s.srv.Inject(zktest.Hold().Op(zktest.OpCreate).Session(c.id()))
				ctx, end := withCause(cause)
				call := simGo(ctx, c.Mutex("/l").Lock)
				time.Sleep(100 * time.Millisecond)
				end()
				<-call.done
				require.ErrorIs(s, call.err, context.Canceled)
				in.Remove()
				s.free("/l")
			},
			"check": func(s *sim, c *simClient) {
				h := s.lock(c.Mutex("/l"))
				require.ErrorIs(s, h.Check(ended(cause)), context.Canceled)
				require.NoError(s, h.Err())
				s.unlock(h)
			},
			"downgrade": func(s *sim, c *simClient) {
				rw := c.RWMutex("/rw")
				h, err := rw.Lock(s.Context())
				require.NoError(s, err)
				_, err = rw.Downgrade(ended(cause), h)
				require.ErrorIs(s, err, context.Canceled)
			},
			"proclaim": func(s *sim, c *simClient) {
				l, err := c.Election("/e").Campaign(s.Context(), nil)
				require.NoError(s, err)
				require.ErrorIs(s, l.Proclaim(ended(cause), []byte("x")), context.Canceled)
				require.NoError(s, l.Err())
			},
			"queue": func(s *sim, c *simClient) {
				h := s.lock(c.Mutex("/l"))
				in := s.srv.Inject(zktest.Hold().Op(zktest.OpGetChildren2))
				ctx, end := withCause(cause)
				time.AfterFunc(100*time.Millisecond, end)
				_, err := c.Queue(ctx, "/l")
				require.ErrorIs(s, err, context.Canceled)
				in.Remove()
				s.unlock(h)
			},
			"create a directory": func(s *sim, c *simClient) {
				err := c.session().CreateAll(ended(cause), "/made", nil, 0, zk.WorldACL(zk.PermAll))
				require.ErrorIs(s, err, context.Canceled)
			},
		} {
			t.Run(name+"/"+cause.Error(), func(t *testing.T) {
				simTest(t, func(s *sim) { f(s, s.client()) })
			})
		}
	}
}

// What is nobody's answer is found in the error.
func TestTheCauseOfAContextIsFoundInTheError(t *testing.T) {
	simTest(t, func(s *sim) {
		own := fmt.Errorf("the program stops")
		ctx, cancel := context.WithCancelCause(s.Context())
		cancel(own)
		_, err := s.client().Mutex("/l").Lock(ctx)
		require.ErrorIs(s, err, own)
		require.ErrorIs(s, err, context.Canceled)
	})
}
