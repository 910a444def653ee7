package queue_test

import (
	"context"
	"encoding/binary"
	"errors"
	"path"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// noChildren turns the reply to a list into that of an empty directory, as a server answers that
// lags behind in spite of the sync.
var noChildren = relisted(func([][]byte) [][]byte { return nil })

// missedByTheFirstLook makes the first list behind a sync show an empty directory. It returns how
// often that has happened. (Lists cannot be counted: whether the server reads a list behind a
// create after which it closes the connection is random.)
func missedByTheFirstLook(srv *zktest.Server) *atomic.Int32 {
	var synced, missed atomic.Int32
	srv.Inject(fault.Garble(func(reply []byte) []byte {
		synced.Add(1)
		return reply
	}).Op(fault.OpSync))
	srv.Inject(fault.Garble(func(reply []byte) []byte {
		if synced.Load() == 0 || !missed.CompareAndSwap(0, 1) {
			return reply
		}
		return noChildren(reply)
	}).Op(fault.OpGetChildren2))
	return &missed
}

// relisted changes the names in the reply to a list (header 16, vector, stat 68).
func relisted(change func(names [][]byte) [][]byte) func(reply []byte) []byte {
	return func(reply []byte) []byte {
		if len(reply) < 16+4+68 {
			return reply
		}
		var names [][]byte
		for rest := reply[20 : len(reply)-68]; len(rest) > 0; {
			n := 4 + int(binary.BigEndian.Uint32(rest))
			names, rest = append(names, rest[:n]), rest[n:]
		}
		names = change(names)
		out := binary.BigEndian.AppendUint32(slices.Clone(reply[:16]), uint32(len(names)))
		return slices.Concat(out, slices.Concat(names...), reply[len(reply)-68:])
	}
}

// reversed turns round the names in the reply to a list: servers list in any order.
var reversed = relisted(func(names [][]byte) [][]byte {
	slices.Reverse(names)
	return names
})

// onRetry is a caller that acts when a step is made again.
type onRetry func()

func (onRetry) Queued(queue.Line)        {}
func (act onRetry) Retried(error)        { act() }
func (onRetry) Warn(string, ...any) bool { return true }

func TestACreateThatTheFirstLookMissesIsNotLeftBehindWhenCtxEndsBeforeTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/a", nil))
		s := open(t, srv)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Once())
		missed := missedByTheFirstLook(srv)
		q := mutexIn("/a")
		q.Caller = onRetry(cancel)
		_, err := queue.Enter(ctx, s, q)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 1, missed.Load())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, s.Err())
		require.Empty(t, srv.Children("/a"),
			"the znode of a call that has ended is in everybody's way")
	})
}

// The reply to a create is lost, the first look misses its znode, and the create is made again;
// that reply is lost too, and then ctx ends.
func TestTheSweeperDeletesAllThatOneContenderHasMade(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/a", nil))
		s := open(t, srv)
		srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Times(2))
		missed := missedByTheFirstLook(srv)
		held := srv.Inject(fault.Hold().Op(fault.OpSync).After(1))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := queue.Enter(ctx, s, mutexIn("/a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 1, missed.Load())
		require.Len(t, srv.Children("/a"), 2)

		held.Remove()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, s.Err())
		require.False(t, queue.Sweeping(s))
		require.Empty(t, srv.Children("/a"))
	})
}

// A server in trouble refuses the Stat of a znode. The znode exists all the same, and blocks the
// lock.
func TestACreateWhoseReplyIsLostLeavesNoZnodeWhoseStatIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/l", nil))
		s := open(t, srv)
		srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Once())
		srv.Inject(fault.Answer(fault.CodeMarshallingError).Op(fault.OpExists).Times(5))
		ticket, err := queue.Enter(within(t, soon), s, aMutex())
		if err == nil {
			require.NoError(t, ticket.Wait(within(t, soon)), "nobody else is there")
			require.NoError(t, ticket.Leave(within(t, soon)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoError(t, s.Err())
		require.Empty(t, srv.Children("/l"))
	})
}

// The first look misses the znode, and the server is in trouble when the list behind the next
// create shows it.
func TestAZnodeThatTheFirstLookMissedIsDeletedThoughItsStatIsRefusedForAWhile(t *testing.T) {
	for _, refusals := range []int{1, 2, 10} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			require.NoError(t, srv.Create("/l", nil))
			s := open(t, srv)
			srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Once())
			missed := missedByTheFirstLook(srv)
			srv.Inject(fault.Answer(fault.CodeMarshallingError).Op(fault.OpExists).Times(refusals))
			ticket := enter(t, aMutex(), s)
			require.EqualValues(t, 1, missed.Load())
			require.NoError(t, ticket.Wait(within(t, soon)), "only its own znode is before it")
			require.Equal(t, []string{path.Base(ticket.Nodes()[0])}, srv.Children("/l"))
		})
	}
}

// Scenario 76: a first look misses some or all znodes of a transaction whose reply was lost. It is
// made again, that reply is lost too, and the next look finds znodes of both. In between another
// client has entered the same queues: behind a place of the first and before one of the second,
// each would wait for the other.
func TestScenario76_OnlyPlacesOfOneTransactionAreAdopted(t *testing.T) {
	for name, missed := range map[string][]string{"one queue is missed": {"/a"},
		"the other is missed": {"/b"}, "both are missed": {"/a", "/b"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				var queues, others []queue.Queue
				for _, dir := range []string{"/a", "/b"} {
					require.NoError(t, srv.Create(dir, nil))
					others = append(others, mutexIn(dir))
				}
				s, other := open(t, srv), open(t, srv)
				for _, dir := range missed {
					srv.Inject(
						fault.Garble(noChildren).Op(fault.OpGetChildren2).Path(dir).Session(
							s.ID()).Once())
				}
				srv.Inject(
					fault.Garble(reversed).Op(fault.OpGetChildren2).Path("/b").Session(s.ID()))
				lost := srv.Inject(
					fault.CloseAfter().Op(fault.OpMulti).Path("/a/*").Session(s.ID()).Times(2))
				var rival *queue.Ticket
				queues = slices.Clone(others)
				queues[0].Caller = onRetry(func() {
					if rival == nil {
						var err error
						rival, err = queue.Enter(within(t, soon), other, others...)
						require.NoError(t, err)
					}
				})
				ticket, err := queue.Enter(within(t, soon), s, queues...)
				require.NoError(t, err)
				require.Equal(t, 2, lost.Hits())
				for _, znode := range ticket.Nodes() {
					n, there := srv.Node(znode)
					require.True(t, there)
					require.Equal(t, n.Stat.Czxid, ticket.Czxid())
				}
				first, second := ticket, rival
				if rival.Czxid() < ticket.Czxid() {
					first, second = rival, ticket
				}
				one, two := wait(first, within(t, soon)), wait(second, within(t, soon))
				require.NoError(t, <-one)
				pending(t, two)
				for _, dir := range []string{"/a", "/b"} {
					require.Len(t, srv.Children(dir), 2,
						"the place that was not adopted is deleted")
				}
				require.NoError(t, first.Leave(within(t, soon)))
				require.NoError(t, <-two)
				require.NoError(t, second.Leave(within(t, soon)))
				require.Empty(t, append(srv.Children("/a"), srv.Children("/b")...))
			})
		})
	}
}

// Scenario 76, with one queue: a call that finds two znodes of its own adopts the one that came
// first, in whatever order they are listed, so that it does not wait for itself; a try would find
// the lock busy.
func TestScenario76_OfTwoOwnPlacesTheFirstIsAdopted(t *testing.T) {
	for name, turn := range map[string]func([]byte) []byte{"as listed": slices.Clone[[]byte],
		"turned round": reversed} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				require.NoError(t, srv.Create("/a", nil))
				s := open(t, srv)
				lost := srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Times(2))
				missed := missedByTheFirstLook(srv)
				srv.Inject(fault.Garble(turn).Op(fault.OpGetChildren2))
				ticket, err := queue.Try(within(t, soon), s, mutexIn("/a"))
				require.NoError(t, err, "nobody else is there")
				require.Equal(t, 2, lost.Hits())
				require.EqualValues(t, 1, missed.Load())
				synctest.Wait()
				require.Equal(t, []string{path.Base(ticket.Nodes()[0])}, srv.Children("/a"),
					"the other is deleted")
				require.NoError(t, ticket.Leave(within(t, soon)))
				require.Empty(t, srv.Children("/a"))
			})
		})
	}
}

// Scenario 76, with one queue: the second look misses the second place. A call never has two, so
// that is deleted too, although the call lists no more.
func TestScenario76_APlaceThatIsNotAdoptedIsNotLeftBehindWhereTheLookMissesIt(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/a", nil))
		s := open(t, srv)
		lost := srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Times(2))
		missed := missedByTheFirstLook(srv)
		var late atomic.Bool
		srv.Inject(fault.Garble(relisted(func(names [][]byte) [][]byte {
			if len(names) == 2 && late.CompareAndSwap(false, true) {
				return names[:1]
			}
			return names
		})).Op(fault.OpGetChildren2))
		ticket := enter(t, mutexIn("/a"), s)
		require.Equal(t, 2, lost.Hits())
		require.EqualValues(t, 1, missed.Load())
		require.True(t, late.Load())
		require.NoError(t, ticket.Wait(within(t, soon)))
		require.NoError(t, ticket.Leave(within(t, soon)))
		time.Sleep(time.Minute)
		require.NoError(t, s.Err())
		require.Empty(t, srv.Children("/a"))
	})
}

// The first contender of a directory makes the directory and its znode in one transaction, and
// holds without a list.
func TestTheFirstContenderOfADirectoryMakesItWithItsZnode(t *testing.T) {
	for name, container := range map[string]bool{"persistent": false, "container": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s, q := open(t, srv), aMutex()
				q.Container = container
				ticket := enter(t, q, s)
				require.NoError(t, ticket.Wait(within(t, soon)))
				made := srv.Requests()
				require.Equal(t, []int{1, 1, 1},
					[]int{made[fault.OpCreate], made[fault.OpGetChildren2], made[fault.OpMulti]},
					"a create and a list, which find no directory, and the transaction")
				require.Zero(t, made[fault.OpCreateContainer])
				dir, err := s.Exists(within(t, soon), "/l")
				require.NoError(t, err)
				require.Equal(t, ticket.Czxid(), dir.Czxid)
				require.Len(t, srv.Children("/l"), 1)
				require.NoError(t, ticket.Leave(within(t, soon)))
				time.Sleep(time.Hour)
				_, err = s.Exists(within(t, soon), "/l")
				require.Equal(t, container, errors.Is(err, zk.ErrNoNode),
					"the ensemble removes an empty container")
			})
		})
	}
}

// Whatever happens to the transaction, the contender has one znode in the end.
func TestADirectorysFirstContenderHasOneZnodeWhateverBecomesOfItsTransaction(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"request lost": fault.CloseBefore(), "reply lost": fault.CloseAfter(),
		"refused": fault.Answer(fault.CodeNoAuth),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				struck := srv.Inject(failure.Op(fault.OpMulti).Once())
				ticket := enter(t, aMutex(), s)
				require.NoError(t, ticket.Wait(within(t, soon)))
				require.Equal(t, 1, struck.Hits())
				require.Equal(t, ticket.Nodes(), []string{"/l/" + srv.Children("/l")[0]})
				require.Len(t, srv.Children("/l"), 1)
				require.NoError(t, ticket.Leave(within(t, soon)))
				require.Empty(t, srv.Children("/l"))
			})
		})
	}
}

// If another client makes the directory, and holds, while the transaction is under way, the
// contender waits behind it.
func TestAContenderWhoseDirectoryIsMadeMeanwhileWaitsForItsPredecessor(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := open(t, srv), open(t, srv)
		late := srv.Inject(fault.Hold().Op(fault.OpMulti).Session(b.ID()).Once())
		entered := make(chan *queue.Ticket, 1)
		go func() {
			ticket, err := queue.Enter(t.Context(), b, aMutex())
			if err != nil {
				t.Error(err)
			}
			entered <- ticket
		}()
		<-late.Hit()
		first := enter(t, aMutex(), a)
		require.NoError(t, first.Wait(within(t, soon)))
		late.Remove()
		second := <-entered
		held := wait(second, context.Background())
		pending(t, held)
		require.NoError(t, first.Leave(within(t, soon)))
		require.NoError(t, <-held)
		require.Greater(t, second.Czxid(), first.Czxid())
		require.NoError(t, second.Leave(within(t, soon)))
	})
}
