package session_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

// parked makes two creates of a refused group wait for the answer to the read of one of them, the one with ctx. The answer is
// held back until then has run.
func parked(t *testing.T, ctx context.Context, l *lockers, then func()) (other, own entered) {
	t.Helper()
	l.srv.Inject(zktest.Answer(zktest.CodeUnimplemented).Op(zktest.OpMultiRead)) // so each is read on its own
	for _, e := range l.enterAll(t.Context(), dirs(3)...) {
		require.NoError(t, e.err)
		require.NoError(t, l.leave(t.Context(), e.Path))
	}
	l.base = l.srv.Requests()
	in := l.srv.Inject(zktest.HoldReply().Op(zktest.OpGetChildren2).Path(dir(2)).Once())
	wait := l.together(
		func() { l.enter(t.Context(), "/none") },
		func() { other = l.enter(t.Context(), dir(1)) },
		func() { own = l.enter(ctx, dir(2)) },
	)
	synctest.Wait()
	require.Equal(t, 1, l.at(zktest.OpMulti))
	require.Equal(t, 3, l.at(zktest.OpGetChildren2))
	require.Empty(t, l.srv.Children(dir(1)), "it waits")
	then()
	synctest.Wait()
	in.Remove()
	wait()
	return other, own
}

func TestAMemberThatGivesUpKeepsNoOtherOneParked(t *testing.T) {
	withLocks(t, 3, func(t *testing.T, l *lockers) {
		ctx, cancel := context.WithCancel(t.Context())
		other, own := parked(t, ctx, l, func() {
			cancel()
			synctest.Wait()
			require.Len(t, l.srv.Children(dir(1)), 1, "it has been sent again")
		})
		require.ErrorIs(t, own.err, context.Canceled)
		require.Empty(t, l.srv.Children(dir(2)))
		l.requireEntered(other, dir(1))
	})
}

func TestMembersThatAreParkedWhenTheConnectionBreaksGoOnTheNextOne(t *testing.T) {
	withLocks(t, 3, func(t *testing.T, l *lockers) {
		other, own := parked(t, t.Context(), l, l.srv.DropConnections)
		l.requireEntered(other, dir(1))
		l.requireEntered(own, dir(2))
	})
}
