package recipe_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// delayed is queue with a lock delay.
func delayed(d time.Duration) recipe.Queue {
	q := queue()
	q.Delays, q.Delay = true, d
	return q
}

func TestALockDelayIsWaitedOutAfterALossAndNotAfterARelease(t *testing.T) {
	const delay = 30 * time.Second
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := open(t, srv), open(t, srv)
		first := enter(t, delayed(delay), a)
		require.NoError(t, first.Wait(within(t, soon)))
		require.NoError(t, first.Leave(within(t, soon)))
		second := enter(t, delayed(delay), b)
		began := time.Now()
		require.NoError(t, second.Wait(within(t, soon)))
		require.Zero(t, time.Since(began), "a release needs no delay")

		second.Guard(func(error) {})
		require.NoError(t, srv.Delete(second.Nodes()[0])) // lost
		_, err := recipe.Try(within(t, soon), a, delayed(delay))
		require.ErrorIs(t, err, recipe.ErrBusy, "with try nothing is waited out")
		third := enter(t, delayed(delay), a)
		err = third.Wait(within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "which was lost (lock delay)")
		require.NoError(t, third.Leave(within(t, soon)))
		third = enter(t, delayed(delay), a)
		began = time.Now()
		require.NoError(t, third.Wait(within(t, time.Minute)))
		require.Equal(t, delay-time.Second, time.Since(began), "counted from the moment at which it was first found")

		require.ErrorIs(t, second.Leave(within(t, soon)), recipe.ErrGone, "one that is late")
		data, _, err := a.Get(within(t, soon), "/l")
		require.NoError(t, err)
		require.Contains(t, string(data), "_c_", "can't touch the note of another")
		require.NoError(t, third.Leave(within(t, soon)))
		data, _, err = a.Get(within(t, soon), "/l")
		require.NoError(t, err)
		require.Empty(t, data)
	})
}

func TestAHolderThatKeepsItsDelayCountsAsLost(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		first := enter(t, delayed(time.Minute), s)
		require.NoError(t, first.Wait(within(t, soon)))
		first.KeepDelay()
		require.NoError(t, first.Leave(within(t, soon)))
		second := enter(t, delayed(0), s)
		began := time.Now()
		require.NoError(t, second.Wait(within(t, time.Hour)))
		require.Equal(t, time.Minute, time.Since(began))
	})
}

func TestDataOfADirectoryThatAreNoNoteAreNoHoldersDelay(t *testing.T) {
	for _, data := range []string{"", `{"delays_ns":{"x":-5}}`, `{}`, `{ "size": 3 }`, `{"delays_ns":{"x":0}}`} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			require.NoError(t, srv.Create("/l", []byte(data)))
			ticket := enter(t, delayed(time.Second), s)
			began := time.Now()
			require.NoError(t, ticket.Wait(within(t, soon)), "%q", data)
			require.Zero(t, time.Since(began), "%q", data)
			require.NoError(t, ticket.Leave(within(t, soon)))
		})
	}
}

// Scenario 67.
func TestDataOfAnotherClientAreNotOverwrittenByANoteOfADelay(t *testing.T) {
	for _, data := range []string{"hello", "{", `{"delays_ns":7}`, `{"size":3,"theirs":true}`, `{"size":3}{}`, `[]`, "null", "\xff", "7"} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			require.NoError(t, srv.Create("/l", []byte(data)))
			ticket := enter(t, delayed(time.Second), s)
			require.ErrorIs(t, ticket.Wait(within(t, soon)), recipe.ErrConflict, "%q", data)
			require.NoError(t, ticket.Leave(within(t, soon)))

			require.NoError(t, srv.SetData("/l", nil))
			ticket = enter(t, delayed(time.Second), s)
			require.NoError(t, ticket.Wait(within(t, soon)))
			require.NoError(t, srv.SetData("/l", []byte(data))) // over our note
			require.NoError(t, ticket.Leave(within(t, soon)))
			n, _ := srv.Node("/l")
			require.Equal(t, data, string(n.Data))
		})
	}
}

func TestADelayInAForeignHandIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		require.NoError(t, srv.Create("/l", []byte(`{"delays_ns":{"x":9223372036854775807}}`)))
		ticket := enter(t, delayed(0), s)
		began := time.Now()
		require.NoError(t, ticket.Wait(context.Background()))
		require.Equal(t, recipe.MaxDelay, time.Since(began))
	})
}

// If a neighbour makes a znode with a lost holder's name, the next holder waits for the delay all the same, with every kind of lock.
func TestAZnodeOfALostHoldersNameIsNoLivingHolder(t *testing.T) {
	for kind, change := range map[string]func(q *recipe.Queue){
		"mutex": func(*recipe.Queue) {}, "reader": func(q *recipe.Queue) { q.Kind = recipe.Read },
		"permits": func(q *recipe.Queue) { q.Kind, q.Permits, q.Size = recipe.Permits, 1, recipe.NewSize(3) },
	} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				a, b, neighbour := open(t, srv), open(t, srv), open(t, srv)
				q := delayed(time.Minute)
				change(&q)
				lost := enter(t, q, a)
				require.NoError(t, lost.Wait(within(t, soon)))
				lost.Guard(func(error) {})
				beside := kind != "mutex"
				if beside { // a holder that exists is not waited for
					other, began := enter(t, q, b), time.Now()
					require.NoError(t, other.Wait(within(t, soon)))
					require.Zero(t, time.Since(began))
				}
				require.NoError(t, srv.Delete(lost.Nodes()[0]))
				if beside {
					_, err := neighbour.Create(within(t, soon), lost.Nodes()[0], nil, session.Ephemeral, session.WorldACL())
					require.NoError(t, err)
				}
				next, began := enter(t, q, b), time.Now()
				require.NoError(t, next.Wait(within(t, time.Hour)))
				require.Equal(t, time.Minute, time.Since(began))
			})
		})
	}
}
