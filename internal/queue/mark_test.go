package queue_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestAHolderThatHadToWaitHandsOverByItsMarkAndNoContenderLists(t *testing.T) {
	writers := func(int) queue.Queue { return writer() }
	for name, c := range map[string]struct {
		kind  func(i int) queue.Queue
		first int // lists when the first one leaves, which leaves no mark
		opts  []zktest.Option
	}{
		"3.8":     {mutex, 0, []zktest.Option{zktest.WithVersion(zktest.Version38)}},
		"3.9":     {mutex, 0, []zktest.Option{zktest.WithVersion(zktest.Version39)}},
		"writers": {writers, 1, nil},
		"a reader at the end": {func(i int) queue.Queue {
			q := writer()
			if i == 4 {
				q.Kind = recipe.Read
			}
			return q
		}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 5, c.kind)
				for i, p := range all {
					synctest.Wait()
					before, requests := lists(srv), srv.Requests()
					require.NoError(t, p.Leave(within(t, soon)))
					if i+1 == len(all) {
						break
					}
					if i == 0 {
						holdsAtOnce(t, srv, all[1], before, c.first)
						continue
					}
					holdsAtOnce(t, srv, all[i+1], before, 0)
					after := srv.Requests()
					for _, op := range []fault.Op{fault.OpExists, fault.OpSetWatches, fault.OpGetData, fault.OpSync, fault.OpRemoveWatches, fault.OpDelete} {
						require.Equal(t, requests[op], after[op], "%v", op)
					}
				}
				requireLeft(t, srv, all)
			}, c.opts...)
		})
	}
}

func TestWithoutAMarkTheListDecides(t *testing.T) {
	for name, c := range map[string]struct {
		goes  func(t *testing.T, srv *zktest.Server, p placed) // the middle one of three, which waits
		lists int
	}{
		"the predecessor gives up": {func(t *testing.T, _ *zktest.Server, p placed) {
			require.NoError(t, p.Leave(within(t, soon)))
		}, 1},
		"it is removed": {func(t *testing.T, srv *zktest.Server, p placed) { require.NoError(t, srv.Delete(p.node)) }, 1},
		"its session ends": {func(t *testing.T, srv *zktest.Server, p placed) {
			require.NoError(t, srv.Expire(p.s.ID()))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutex)
				require.Equal(t, 1, marksWatched(srv))
				before := lists(srv)
				c.goes(t, srv, all[1])
				pending(t, all[2].done)
				require.Equal(t, c.lists, lists(srv)-before)
				require.Zero(t, marksWatched(srv), "a mark that is never made is not watched any more")
				require.NoError(t, all[0].Leave(within(t, soon)))
				holdsAtOnce(t, srv, all[2], before, c.lists)
				require.NoError(t, all[2].Leave(within(t, soon)))
				requireLeft(t, srv, all)
			})
		})
	}
}
