package recipe_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// One of two znodes is deleted. As long as the holder has not heard of the loss, the other one is still protected by the lease.
func TestTheLeaseIsKeptUntilTheHolderHasHeardOfTheLoss(t *testing.T) {
	multiRun(t, func(t *testing.T, srv *zktest.Server, s *session.Session, queues []recipe.Queue) {
		g, err := recipe.Enter(t.Context(), s, queues...)
		require.NoError(t, err)
		require.NoError(t, g.Wait(t.Context()))
		told, heard := make(chan struct{}), make(chan struct{})
		g.Guard(func(error) { close(told); <-heard }) // a holder that is slow to hear it
		time.Sleep(time.Minute)
		require.NoError(t, srv.Delete(g.Nodes()[1]))
		<-told
		time.Sleep(time.Second) // plain pings are answered
		f := srv.Inject(zktest.Freeze())
		safe := s.SafeUntil()
		time.Sleep(time.Until(safe))
		synctest.Wait()
		over := s.Err()
		close(heard)
		f.Remove()
		require.Error(t, over, "the session may be over at the ensemble, and the holder goes on")
	})
}
