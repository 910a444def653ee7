package queue_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
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
					for _, op := range []fault.Op{fault.OpExists, fault.OpSetWatches,
						fault.OpGetData, fault.OpSync, fault.OpRemoveWatches, fault.OpDelete} {
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
		// the middle one of three, which waits
		goes  func(t *testing.T, srv *zktest.Server, p placed)
		lists int
	}{
		"the predecessor gives up": {func(t *testing.T, _ *zktest.Server, p placed) {
			require.NoError(t, p.Leave(within(t, soon)))
		}, 1},
		"it is removed": {func(t *testing.T, srv *zktest.Server, p placed) {
			require.NoError(t, srv.Delete(p.node))
		}, 1},
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
				require.Zero(t, marksWatched(srv),
					"a mark that is never made is not watched any more")
				require.NoError(t, all[0].Leave(within(t, soon)))
				holdsAtOnce(t, srv, all[2], before, c.lists)
				require.NoError(t, all[2].Leave(within(t, soon)))
				requireLeft(t, srv, all)
			})
		})
	}
}

// placed is a ticket in line, with its own session, and its call of Wait.
type placed struct {
	*queue.Ticket
	node string
	done <-chan error
	s    *session.Session
}

// line enters n tickets, one behind the other. The first holds; the others wait.
func line(
	t *testing.T, srv *zktest.Server, n int, kind func(i int) queue.Queue, auth ...session.Auth,
) []placed {
	t.Helper()
	return lineIn(t, n, kind, func() *session.Session { return open(t, srv, auth...) })
}

// lineIn is line, with sessions that in returns.
func lineIn(
	t *testing.T, n int, kind func(i int) queue.Queue, in func() *session.Session,
) []placed {
	t.Helper()
	var all []placed
	for i := range n {
		s := in()
		ticket := enter(t, kind(i), s)
		p := placed{ticket, ticket.Nodes()[0], wait(ticket, within(t, time.Hour)), s}
		if i == 0 {
			require.NoError(t, <-p.done)
		} else {
			pending(t, p.done)
		}
		all = append(all, p)
	}
	return all
}

func mutex(int) queue.Queue { return aMutex() }

func lists(srv *zktest.Server) int { return srv.Requests()[fault.OpGetChildren2] }

// holdsAtOnce requires that p holds before any time passes, after the given number of further
// lists.
func holdsAtOnce(t *testing.T, srv *zktest.Server, p placed, before, more int) {
	t.Helper()
	at := time.Now()
	require.NoError(t, <-p.done)
	require.Equal(t, at, time.Now())
	require.Equal(t, more, lists(srv)-before, "lists")
}

func requireLeft(t *testing.T, srv *zktest.Server, all []placed) {
	t.Helper()
	synctest.Wait()
	require.Empty(t, srv.Children("/l"))
	require.Zero(t, srv.WatchCount(), "%v", srv.Watches())
	for _, p := range all {
		if p.s.Err() == nil {
			require.Zero(t, p.s.EphemeralBytes())
		}
	}
}

// marksWatched counts the watches on marks.
func marksWatched(srv *zktest.Server) (n int) {
	for _, w := range srv.Watches() {
		if strings.HasSuffix(w.Path, "-released") {
			n++
		}
	}
	return n
}

// If the server refuses the mark, the release is sent as a plain delete.
func TestAReleaseWhoseMarkIsRefusedIsAPlainDelete(t *testing.T) {
	for name, refuse := range map[string]func(t *testing.T, srv *zktest.Server, p placed){
		"permission": func(_ *testing.T, srv *zktest.Server, p placed) {
			srv.Inject(fault.AnswerInside(fault.CodeNoAuth).Op(fault.OpMulti).Path(p.node + "*"))
		},
		"quota": func(_ *testing.T, srv *zktest.Server, p placed) {
			srv.Inject(fault.AnswerInside(-125).Op(fault.OpMulti).Path(p.node + "*"))
		},
		"a znode of its name": func(t *testing.T, srv *zktest.Server, p placed) {
			require.NoError(t, srv.Create(p.node+"-released", nil))
		},
		"an answer to the whole": func(_ *testing.T, srv *zktest.Server, p placed) {
			srv.Inject(fault.Answer(fault.CodeUnimplemented).Op(fault.OpMulti).Path(p.node + "*"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutex)
				refuse(t, srv, all[1])
				require.NoError(t, all[0].Leave(within(t, soon)))
				require.NoError(t, <-all[1].done)
				require.NoError(t, all[1].Leave(within(t, soon)))
				require.NoError(t, <-all[2].done)
				require.NoError(t, all[2].Leave(within(t, soon)))
				_ = srv.Delete(all[1].node + "-released") // where it was made
				requireLeft(t, srv, all)
			})
		})
	}
}

// The reply to a release is lost. Whether the release was carried out or not, the next contender
// holds, and no znode stays counted.
func TestAReleaseWhoseReplyIsLostIsMadeAgain(t *testing.T) {
	for name, failure := range map[string]fault.Fault{"carried out": fault.CloseAfter(),
		"not carried out": fault.CloseBefore()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutex)
				require.NoError(t, all[0].Leave(within(t, soon)))
				require.NoError(t, <-all[1].done)
				srv.Inject(failure.Op(fault.OpMulti).Path(all[1].node + "*").Once())
				before := lists(srv)
				require.NoError(t, all[1].Leave(within(t, soon)))
				require.NoError(t, <-all[2].done)
				require.Equal(t, before, lists(srv))
				require.NoError(t, all[2].Leave(within(t, soon)))
				requireLeft(t, srv, all)
			})
		})
	}
}

// A server in trouble may give such an answer to a transaction that it has carried out.
func TestAReleaseWithAnAnswerThatProvesNothingIsNoLoss(t *testing.T) {
	for _, marked := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "marked"}[marked], func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutex)
				who := all[0]
				op := fault.OpDelete
				if marked {
					require.NoError(t, all[0].Leave(within(t, soon)))
					require.NoError(t, <-all[1].done)
					who, op = all[1], fault.OpMulti
				}
				srv.Inject(fault.Garble(func(b []byte) []byte {
					b = b[:16]
					copy(b[12:], []byte{0xff, 0xff, 0xff, 0xfb}) // MarshallingError, -5
					return b
				}).Op(op).Path(who.node + "*").Once())
				err := who.Leave(within(t, soon))
				require.NotErrorIs(t, err, queue.ErrGone)
			})
		})
	}
}
