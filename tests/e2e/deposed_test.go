package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/e2e/history"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zklock"
)

// A leader that is cut off from its followers goes on answering sync until syncLimit is over.
// Followers that restart meanwhile elect another leader at once, and that one counts the holder's
// session timeout from its own start. The old leader's answers must not prolong a hold.
func TestHoldIsNotProlongedByALeaderThatHasBeenReplaced(t *testing.T) {
	const tick, timeout = 500 * time.Millisecond, 2 * time.Second
	e, err := ensemble.Open(3, ensemble.WithTick(tick), ensemble.WithSyncLimit(60)) // half a minute
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	leader := e.Leader(t)
	var others []*ensemble.Node
	var addrs []string
	for _, n := range e.Nodes {
		if n != leader {
			others, addrs = append(others, n), append(addrs, n.Addr())
		}
	}
	dial := func(to string) *zklock.Client {
		c, err := zklock.Dial(t.Context(), to, zklock.WithSessionTimeout(timeout),
			zklock.WithTickTime(tick))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	first, second := dial(leader.Addr()), dial(strings.Join(addrs, ","))
	_, held, err := first.Mutex("/deposed").Lock(t.Context())
	require.NoError(t, err)

	e.Isolate(leader)
	for _, n := range others {
		require.NoError(t, n.Kill())
	}
	for _, n := range others {
		require.NoError(t, n.Launch())
	}
	type next struct {
		err error
		at  history.Stamp
	}
	got := make(chan next, 1)
	go func() { // ends within the bound, and is awaited below
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, _, err := second.Mutex("/deposed").Lock(ctx)
		got <- next{err, history.Now()}
	}()
	var last history.Stamp // the first client certainly held the lock
	looks := time.NewTicker(time.Millisecond)
	defer looks.Stop()
	for now := history.Now(); held.Err() == nil; now = history.Now() {
		last = now
		<-looks.C
	}
	n := <-got
	require.NoError(t, n.err)
	require.Less(t, last, n.at,
		"the second client got the lock %v before the first client's hold had ended", last.Sub(n.at))
}
