package link_test

import (
	"context"
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

// A list waits to be written until the reply to an earlier one has come. Its call is given up. What
// waited behind it is written, although no reply comes.
func TestWhatWaitedBehindAListThatIsGivenUpIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t, &owner{patience: time.Minute})
		exchange := func(ctx context.Context, op int32) {
			r := pipeline.NewRequest(op, "test", "/")
			_, _ = c.Exchange(ctx, []*pipeline.Request{r}) // the test ends it
		}
		go exchange(t.Context(), wire.OpGetChildren2)
		_, op := p.request()
		require.Equal(t, wire.OpGetChildren2, op)
		ctx, cancel := context.WithCancel(t.Context())
		go exchange(ctx, wire.OpGetChildren2)
		synctest.Wait()
		go exchange(t.Context(), wire.OpExists)
		synctest.Wait()
		queued, _ := c.Waiting()
		require.Equal(t, 2, queued)

		cancel()
		require.NoError(t, p.SetReadDeadline(time.Now().Add(time.Second)))
		_, op = p.request()
		require.Equal(t, wire.OpExists, op)
	})
}
