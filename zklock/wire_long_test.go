package zklock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
)

// A long wait costs reads of the size and the data of the holder's znode, once for all waiters of a session, so that the
// error of a wait that ends in vain can name the holder. They also show whether we may read the znode: otherwise we would
// not be notified of its deletion. They are made once for each predecessor, however long the wait. The watch on our own
// znode, which is set with the other one, is kept for the hold.
func TestLongWaitCostsTwoReadsMore(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	h := locktest.Lock(t, s.Client(t).Mutex(dir))
	c, p := s.Tapped(t)
	tap := p.Tap()
	w := locktest.LockAside(t, c.Mutex(dir))
	awaitReplies(t, tap, ensemble.OpGetData, 1)
	locktest.Pass(2 * quietFor)
	require.Equal(t, []string{"create", "getChildren2", "setWatches", "exists", "getData"}, passed(tap, true))
	require.Equal(t, h.Node(), lastPath(tap, ensemble.OpGetData))

	tap.Reset()
	locktest.Unlock(t, h)
	mine := w.Result(t)
	locktest.Pass(2 * quietFor)
	require.Empty(t, passed(tap, true), "neither the hand-over nor a long hold after it costs anything more")
	locktest.Unlock(t, mine)
	awaitNotification(t, tap, mine.Node())
	require.Equal(t, []string{"multi"}, passed(tap, true))
}

// A waiter that moves up after a long wait, and is still behind the same holder, knows its name already.
func TestThirdInLineAfterALongWaitReadsTheHolderNoMore(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	h := locktest.Lock(t, s.Client(t).Mutex(dir))
	second := locktest.LockAside(t, s.Client(t).Mutex(dir))
	c, p := s.Tapped(t)
	tap := p.Tap()
	locktest.AwaitContenders(t, c, dir, 2)
	third := locktest.LockAside(t, c.Mutex(dir))
	awaitReplies(t, tap, ensemble.OpGetData, 1)
	require.Equal(t, h.Node(), lastPath(tap, ensemble.OpGetData))
	tap.Reset()
	require.ErrorIs(t, second.Abandon(), context.Canceled)
	awaitReplies(t, tap, ensemble.OpSetWatches, 1)
	locktest.Pass(2 * quietFor)
	require.Equal(t, []string{"getChildren2", "removeWatches", "setWatches"}, passed(tap, true))
	locktest.Unlock(t, h)
	locktest.Unlock(t, third.Result(t))
}

// A hold that lasts watches its own znode, from quietFor on, once.
func TestLongHoldCostsAWatchMore(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	c, p := s.Tapped(t)
	tap := p.Tap()
	m := c.Mutex(s.Path(t))
	locktest.Unlock(t, locktest.Lock(t, m))
	tap.Reset()
	h := locktest.Lock(t, m)
	awaitReplies(t, tap, ensemble.OpExists, 1) // after the watch: is the znode still ours, and not another of the same name?
	locktest.Pass(2 * quietFor)
	require.Equal(t, []string{"create", "getChildren2", "setWatches", "exists"}, passed(tap, true))
	require.Equal(t, h.Node(), lastPath(tap, ensemble.OpSetWatches))
	locktest.Unlock(t, h)
	awaitNotification(t, tap, h.Node())
	require.Equal(t, []string{"create", "getChildren2", "setWatches", "exists", "delete"}, passed(tap, true))
}
