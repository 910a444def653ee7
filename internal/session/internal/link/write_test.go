package link_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// promptSocket is one that says that it writes at once, which is not so: a write lasts until the
// peer has read it.
type promptSocket struct{ net.Conn }

func (promptSocket) WritesAtOnce() bool { return true }

// A call writes to the idle conn. What others put on the conn meanwhile is written behind it.
func TestACallThatWritesIsNotInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connectBy(t, &owner{patience: time.Minute},
			func(c net.Conn) net.Conn { return promptSocket{c} })
		exchange := func() {
			r := pipeline.NewRequest(wire.OpExists, "exists", "/")
			_, _ = c.Exchange(t.Context(), []*pipeline.Request{r}) // the test ends it
		}
		go exchange()
		synctest.Wait() // it writes
		go exchange()
		require.True(t, c.Enqueue(pipeline.Ping()))
		synctest.Wait() // they wait

		_, op := p.request()
		require.Equal(t, wire.OpExists, op)
		_, op = p.request()
		require.Equal(t, wire.OpPing, op, "is urgent")
		_, op = p.request()
		require.Equal(t, wire.OpExists, op)
	})
}
