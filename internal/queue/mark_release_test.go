package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

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

// The reply to a release is lost. Whether the release was carried out or not, the next contender holds, and no znode stays counted.
func TestAReleaseWhoseReplyIsLostIsMadeAgain(t *testing.T) {
	for name, failure := range map[string]fault.Fault{"carried out": fault.CloseAfter(), "not carried out": fault.CloseBefore()} {
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
