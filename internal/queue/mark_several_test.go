package queue_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// A ticket of several queues leaves each queue in which it had to wait by a mark, and all in one
// transaction. It leaves no mark in a queue in which it was first.
func TestSeveralPlacesAreLeftWithAMarkEach(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		both := []queue.Queue{mutexIn("/a"), mutexIn("/b")}
		one := func(dir string, s *session.Session) (*queue.Ticket, <-chan error) {
			ticket, err := queue.Enter(within(t, soon), s, mutexIn(dir))
			require.NoError(t, err)
			return ticket, wait(ticket, within(t, time.Hour))
		}
		s := open(t, srv)
		first, done := one("/a", s)
		require.NoError(t, <-done)
		several, err := queue.Enter(within(t, soon), open(t, srv), both...)
		require.NoError(t, err)
		severalDone := wait(several, within(t, time.Hour))
		pending(t, severalDone)
		behindA, doneA := one("/a", open(t, srv))
		behindB, doneB := one("/b", open(t, srv))
		again, err := queue.Enter(within(t, soon), open(t, srv), both...)
		require.NoError(t, err)
		againDone := wait(again, within(t, time.Hour))
		pending(t, againDone)
		pending(t, doneA)
		pending(t, doneB)

		require.NoError(t, first.Leave(within(t, soon)))
		require.NoError(t, <-severalDone)
		synctest.Wait()
		before := lists(srv)
		require.NoError(t, several.Leave(within(t, soon)))
		require.NoError(t, <-doneA)
		require.NoError(t, <-doneB)
		require.Equal(t, before, lists(srv))
		require.NoError(t, behindB.Leave(within(t, soon)))
		pending(t, againDone)
		require.NoError(t, behindA.Leave(within(t, soon)))
		require.NoError(t, <-againDone)
		require.NoError(t, again.Leave(within(t, soon)))
		synctest.Wait()
		require.Empty(t, srv.Children("/a"))
		require.Empty(t, srv.Children("/b"))
		require.Zero(t, srv.WatchCount(), "%v", srv.Watches())
	})
}

// placeInAll enters the mutexes at dirs with one ticket of a session of its own, and waits for them
// in the background.
func placeInAll(t *testing.T, srv *zktest.Server, dirs ...string) placed {
	var queues []queue.Queue
	for _, dir := range dirs {
		queues = append(queues, mutexIn(dir))
	}
	s := open(t, srv)
	ticket, err := queue.Enter(within(t, soon), s, queues...)
	require.NoError(t, err)
	return placed{ticket, ticket.Nodes()[0], wait(ticket, within(t, time.Hour)), s}
}

// A ticket of several queues that gives up leaves no mark in any of them, not even in one in which
// it has become first.
func TestSeveralPlacesThatAreGivenUpAreLeftWithoutMarks(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		place := func(dirs ...string) placed { return placeInAll(t, srv, dirs...) }
		first, other := place("/a"), place("/b")
		require.NoError(t, <-first.done)
		require.NoError(t, <-other.done)
		several := place("/a", "/b")
		pending(t, several.done)
		behind := place("/a")
		pending(t, behind.done)
		require.NoError(t, several.Leave(within(t, soon)))
		pending(t, behind.done)
		require.NoError(t, first.Leave(within(t, soon)))
		require.NoError(t, <-behind.done)
	})
}

// As with one znode: a release that was carried out succeeds, whatever a server in trouble answers,
// and one that was not carried out is made again, so that no znode stays.
func TestAReleaseOfSeveralPlacesWithAnAnswerThatProvesNothingIsARelease(t *testing.T) {
	trouble := fault.Garble(func(b []byte) []byte {
		b = b[:16]
		copy(b[12:], []byte{0xff, 0xff, 0xff, 0xfb}) // MarshallingError, -5
		return b
	})
	for name, c := range map[string]struct {
		fault fault.Fault
		other bool // another client deletes one of the znodes
		want  error
	}{
		"carried out":                   {trouble, false, nil},
		"refused, and one was deleted":  {fault.AnswerInside(-125), true, queue.ErrGone}, // quota
		"in doubt, and one was deleted": {fault.Answer(fault.CodeMarshallingError), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				place := func(dirs ...string) placed { return placeInAll(t, srv, dirs...) }
				first := place("/a")
				several := place("/a", "/b")
				pending(t, several.done)
				require.NoError(t, first.Leave(within(t, soon)))
				require.NoError(t, <-several.done)
				if c.other {
					require.NoError(t, srv.Delete(several.node))
				}
				srv.Inject(c.fault.Op(fault.OpMulti).Path(several.node + "*").Once())
				require.ErrorIs(t, several.Leave(within(t, soon)), c.want)
				require.Empty(t, srv.Children("/a"))
				require.Empty(t, srv.Children("/b"))
			})
		})
	}
}

// Each mark uses a number of the directory's counter. When the counter passes its half, and its
// three quarters, still one contender holds at a time, and the directory is renewed as soon as the
// queue is empty.
func TestMarksAreMadeAcrossTheHalfAndTheThreeQuartersOfTheCounter(t *testing.T) {
	const half, three4 = 1 << 30, 3 << 29
	for name, counter := range map[string]int32{"half": half - 20, "three quarters": three4 - 20} {
		for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
			t.Run(name+", "+string(version), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					const clients, rounds = 6, 8
					require.NoError(t, srv.Create("/l", nil))
					require.NoError(t, srv.SetSequence("/l", counter))
					kind := mutex
					var holders, held atomic.Int32
					var all sync.WaitGroup
					for range clients {
						s := open(t, srv)
						all.Go(func() {
							for range rounds {
								ticket, err := queue.Enter(t.Context(), s, kind(0))
								if err == nil {
									err = ticket.Wait(t.Context())
								}
								if err != nil {
									t.Error(err)
									return
								}
								if n := holders.Add(1); n != 1 {
									t.Errorf("%d hold", n)
								}
								held.Add(1)
								time.Sleep(time.Millisecond)
								holders.Add(-1)
								if err := ticket.Leave(t.Context()); err != nil {
									t.Error(err)
								}
							}
						})
					}
					all.Wait()
					require.EqualValues(t, clients*rounds, held.Load())
					time.Sleep(time.Minute)
					n, ok := srv.Node("/l")
					require.True(t, ok)
					require.Empty(t, srv.Children("/l"))
					require.Less(t,
						recipe.NewListing(nil,
							zk.Stat{Cversion: n.Stat.Cversion}).Counter, int32(half),
						"it is renewed")
				}, zktest.WithVersion(version))
			})
		}
	}
}
