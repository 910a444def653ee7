package recipe_test

import (
	"github.com/stretchr/testify/require"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
	"testing"
)

// A server in trouble may answer so behind a transaction that it has carried out.
func TestAReleaseWithAnAnswerThatProvesNothingIsNoLoss(t *testing.T) {
	for _, marked := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "marked"}[marked], func(t *testing.T) {
			markBubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutexes())
				who := all[0]
				op := zktest.OpDelete
				if marked {
					require.NoError(t, all[0].Leave(within(t, soon)))
					require.NoError(t, <-all[1].done)
					who, op = all[1], zktest.OpMulti
				}
				srv.Inject(zktest.Garble(func(b []byte) []byte {
					b = b[:16]
					copy(b[12:], []byte{0xff, 0xff, 0xff, 0xfb}) // MarshallingError, -5
					return b
				}).Op(op).Path(who.node + "*").Once())
				err := who.Leave(within(t, soon))
				require.NotErrorIs(t, err, recipe.ErrGone)
			})
		})
	}
}
