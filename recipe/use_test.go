package recipe_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
)

func writer() recipe.Queue {
	q := queue()
	q.Kind = recipe.Write
	return q
}

// Whether a neighbour's predecessor may be read is found out without a list of its children.
func TestAPredecessorWithManyChildrenCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/l", nil))
		require.NoError(t, srv.Create("/l/x-lock-0000000000", nil))
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, srv.Create("/l/x-lock-0000000000/"+strings.Repeat(name, 1000), nil))
		}
		q := queue()
		q.Describe = nil
		done := wait(enter(t, q, open(t, srv)), context.Background())
		lists := srv.Requests()[zktest.OpGetChildren2]
		time.Sleep(time.Hour)
		pending(t, done)
		require.Equal(t, lists, srv.Requests()[zktest.OpGetChildren2])
		require.Less(t, int(srv.Requests()[zktest.OpGetData]), 65, "one short read a minute")
		for _, name := range srv.Children("/l/x-lock-0000000000") {
			require.NoError(t, srv.Delete("/l/x-lock-0000000000/"+name))
		}
		require.NoError(t, srv.Delete("/l/x-lock-0000000000"))
		require.NoError(t, <-done)
	})
}
