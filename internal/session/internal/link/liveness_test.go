package link_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Each chunk of a long request is taken within the patience; the request as a whole is not.
func TestALongRequestOnASlowLineIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t, &owner{patience: time.Second})
		r := pipeline.NewRequest(wire.OpSetData, "set", "/x")
		r.Frame = append(r.Frame, make([]byte, 1<<20)...)
		began := time.Now()
		c.Enqueue(r)
		for left := len(r.Frame); left > 0; {
			time.Sleep(100 * time.Millisecond)
			n := min(left, 4<<10)
			p.skip(n)
			left -= n
		}
		require.Greater(t, time.Since(began), 20*time.Second)
		_, unheard := c.Quiet(time.Now())
		require.Less(t, unheard, time.Second, "the server has just taken something")
		require.NoError(t, c.Failure())
	})
}

// A reply that is too long to be kept is skipped, which takes half a minute.
func TestAReplyThatIsSkippedShowsAllTheTimeThatTheServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, part = wire.MaxFrame + 1<<20, 1 << 20
		var last time.Time
		var longest time.Duration
		o := &owner{patience: time.Second}
		o.heard = func(at time.Time) {
			longest, last = max(longest, at.Sub(last)), at
		}
		c, p := connect(t, o)
		r := pipeline.NewRequest(wire.OpGetData, "get", "/x")
		c.Enqueue(r)
		xid, _ := p.request()
		last = time.Now()
		_, err := p.Write(append(wire.AppendInt(nil, size), replyHeader(xid)...))
		require.NoError(t, err)
		for left := size - wire.ReplyHeaderLen; left > 0; left -= part {
			time.Sleep(time.Second)
			_, err := p.Write(make([]byte, min(left, part)))
			require.NoError(t, err)
			_, unheard := c.Quiet(time.Now())
			require.LessOrEqual(t, unheard, time.Second)
		}
		synctest.Wait()
		require.True(t, r.Ended())
		require.NoError(t, r.Err())
		require.Equal(t, time.Second, longest)
		require.Equal(t, time.Now(), last)
		require.NoError(t, c.Failure())
	})
}
