package recipe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
)

func TestGuardTellsOfADeletionOnceAndOfNothingElse(t *testing.T) {
	for name, waits := range map[string]bool{"not watched yet": false, "watched while waiting": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				var first *recipe.Ticket
				if waits {
					first = enter(t, queue(), s)
				}
				ticket := enter(t, queue(), s)
				done := wait(ticket, context.Background())
				synctest.Wait()
				if waits {
					require.NoError(t, first.Leave(within(t, soon)))
				}
				require.NoError(t, <-done)
				watched := srv.WatchCount()
				require.Equal(t, waits, watched == 1)

				var told atomic.Int32
				ticket.Guard(func(err error) {
					if !errors.Is(err, recipe.ErrGone) {
						t.Error(err)
					}
					told.Add(1)
				})
				synctest.Wait()
				require.Equal(t, watched, srv.WatchCount(), "what is over soon costs nothing")
				for range 3 {
					time.Sleep(time.Second)
					require.Equal(t, 1, srv.WatchCount())
					require.NoError(t, srv.SetData(ticket.Nodes()[0], []byte("noise")))
				}
				srv.DropConnections()
				time.Sleep(2 * time.Second)
				require.Zero(t, told.Load())
				require.NoError(t, srv.Delete(ticket.Nodes()[0]))
				synctest.Wait()
				require.EqualValues(t, 1, told.Load())
				ticket.Missing(ticket.Nodes()[0])
				require.EqualValues(t, 1, told.Load())
				require.Zero(t, srv.WatchCount())
			})
		})
	}
}

func TestGuardOfAZnodeThatIsGoneAlreadyTellsSo(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ticket := enter(t, queue(), s)
		require.NoError(t, ticket.Wait(within(t, soon)))
		require.NoError(t, srv.Delete(ticket.Nodes()[0]))
		told := make(chan error, 1)
		ticket.Guard(func(err error) { told <- err })
		require.ErrorIs(t, <-told, recipe.ErrGone)
		synctest.Wait()
		require.Zero(t, srv.WatchCount())
	})
}
