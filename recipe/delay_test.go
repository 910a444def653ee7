package recipe_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
)

func TestAClaimIsWaitedOutAfterALossAndNotAfterARelease(t *testing.T) {
	const delay = 30 * time.Second
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := open(t, srv), open(t, srv)
		first := enter(t, queue(), a)
		require.NoError(t, first.Claim(within(t, soon), delay, false))
		require.NoError(t, first.Leave(within(t, soon)))
		second := enter(t, queue(), b)
		began := time.Now()
		require.NoError(t, second.Claim(within(t, soon), delay, false))
		require.Zero(t, time.Since(began), "a release needs no delay")

		require.NoError(t, srv.Delete(second.Node())) // lost
		third := enter(t, queue(), a)
		require.ErrorIs(t, third.Claim(within(t, soon), delay, true), recipe.ErrBusy, "with try nothing is waited out")
		err := third.Claim(within(t, time.Second), delay, false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "which was lost (lock delay)")
		began = time.Now()
		require.NoError(t, third.Claim(within(t, time.Minute), delay, false))
		require.Equal(t, delay, time.Since(began), "counted from the moment at which it is found")

		require.ErrorIs(t, second.Leave(within(t, soon)), recipe.ErrGone, "one that is late")
		data, _, err := a.Get(within(t, soon), "/l")
		require.NoError(t, err)
		require.Contains(t, string(data), "_c_", "can't touch the claim of another")
		require.NoError(t, third.Leave(within(t, soon)))
		data, _, err = a.Get(within(t, soon), "/l")
		require.NoError(t, err)
		require.Empty(t, data)
	})
}

func TestDataOfADirectoryThatAreNoClaimAreNobodysDelay(t *testing.T) {
	for _, data := range []string{"", `{"claims_ns":{"x":-5}}`, `{}`, `{ "size": 3 }`, `{"claims_ns":{"x":0}}`} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			require.NoError(t, srv.Create("/l", []byte(data)))
			ticket := enter(t, queue(), s)
			began := time.Now()
			require.NoError(t, ticket.Claim(within(t, soon), time.Second, false), "%q", data)
			require.Zero(t, time.Since(began), "%q", data)
			require.NoError(t, ticket.Leave(within(t, soon)))
		})
	}
}

// Scenario 67.
func TestDataOfSomebodyElsesAreNotOverwrittenByAClaim(t *testing.T) {
	for _, data := range []string{"hello", "{", `{"claims_ns":7}`, `{"size":3,"theirs":true}`, `{"size":3}{}`, `[]`, "null", "\xff", "7"} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			require.NoError(t, srv.Create("/l", []byte(data)))
			ticket := enter(t, queue(), s)
			require.ErrorIs(t, ticket.Claim(within(t, soon), time.Second, false), recipe.ErrConflict, "%q", data)
			require.NoError(t, ticket.Leave(within(t, soon)))

			require.NoError(t, srv.SetData("/l", nil))
			ticket = enter(t, queue(), s)
			require.NoError(t, ticket.Claim(within(t, soon), time.Second, false))
			require.NoError(t, srv.SetData("/l", []byte(data))) // over our claim
			require.NoError(t, ticket.Leave(within(t, soon)))
			n, _ := srv.Node("/l")
			require.Equal(t, data, string(n.Data))
		})
	}
}

func TestADelayInAForeignHandIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		require.NoError(t, srv.Create("/l", []byte(`{"claims_ns":{"x":9223372036854775807}}`)))
		ticket := enter(t, queue(), s)
		began := time.Now()
		require.NoError(t, ticket.Claim(context.Background(), 0, false))
		require.Equal(t, recipe.MaxDelay, time.Since(began))
	})
}
