package link_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// contend returns the create of a contender in dir, which may be a member of a group.
func contend(dir string) *pipeline.Request {
	r := pipeline.NewRequest(wire.OpCreate, "create", dir+"/n-")
	r.Touches = []pipeline.Touch{{Path: r.Path, Effect: pipeline.MakesNumbered}}
	r.Share()
	return r
}

// A call that learns of its request's end may send the request again at once. It must not find the
// connection that has failed.
func TestTheOwnerKnowsOfAFailureBeforeAnyCallLearnsOfIt(t *testing.T) {
	broke := errors.New("broke")
	for name, c := range map[string]struct {
		refusal error // the owner's
		fail    func(c *link.Conn, p peer, xid int32)
		want    error
	}{
		"the connection breaks": {
			fail: func(c *link.Conn, _ peer, _ int32) { c.Fail(broke) },
			want: failure.ErrConnection,
		},
		"the owner gives up the connection for a reply": {
			refusal: broke,
			fail:    func(_ *link.Conn, p peer, xid int32) { p.frame(replyHeader(xid)) },
			want:    failure.ErrNotSent,
		},
		"the reply to a group has no results": {
			fail: func(_ *link.Conn, p peer, xid int32) { p.frame(replyHeader(xid)) },
			want: failure.ErrGarbled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := contend("/a"), contend("/b")
				informed, early := false, false
				o := &owner{patience: time.Minute, refusal: c.refusal}
				o.down = func() { informed, early = true, a.Ended() || b.Ended() }
				conn, p := connect(t, o)
				conn.Enqueue(a, b)
				xid, op := p.request()
				require.Equal(t, wire.OpMulti, op)

				c.fail(conn, p, xid)
				synctest.Wait()
				require.True(t, informed)
				require.False(t, early)
				for _, r := range []*pipeline.Request{a, b} {
					require.True(t, r.Ended())
					require.ErrorIs(t, r.Err(), c.want)
				}
			})
		})
	}
}

// The connection fails, and takes the requests. Before it completes them, a call is given up.
func TestACallThatIsGivenUpWhileItsConnectionFailsTakesNoRequestOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(owner)
		c, _ := newConn(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := c.Exchange(ctx, []*pipeline.Request{contend("/a")})
			got <- err
		}()
		synctest.Wait()
		o.down = func() {
			cancel()
			synctest.Wait()
		}
		c.Fail(errors.New("broke"))
		require.ErrorIs(t, <-got, failure.ErrNotSent)
		queued, pending := c.Waiting()
		require.Equal(t, []int{0, 0}, []int{queued, pending})
		o.joined.Wait()
	})
}
