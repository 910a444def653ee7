package zktest_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestOversizedFrameCostsOnlyItsOwnConnection(t *testing.T) {
	s := zktest.Run(t, zktest.WithJuteMaxBuffer(1000))
	c := scriptOn(t, s.Dial)
	c.ok(t, "a create /x", "b ping")
	assert.Equal(t, "a length: closed", c.do(t, "a length 1001"))
	assert.Contains(t, c.do(t, "a reattach"), "same=true")
	c.ok(t, "b ping")
}

func TestFramesArriveInPieces(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		nc := c.sessions["a"].nc
		require.NoError(t, nc.SetDeadline(time.Time{}))
		for _, b := range []byte{0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 11} {
			_, err := nc.Write([]byte{b})
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		b, err := c.sessions["a"].recv()
		require.NoError(t, err)
		assert.Equal(t, []byte{0xff, 0xff, 0xff, 0xfe}, b[:4])
	})
}

func TestCloseJoinsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	s, err := zktest.Start()
	require.NoError(t, err)
	_, err = s.Follower()
	require.NoError(t, err)
	s.Inject(fault.Hold().Op(fault.OpCreate))
	s.Inject(fault.Freeze().Op(fault.OpDelete))
	s.Inject(fault.Stall(2).Op(fault.OpExists))
	s.Inject(fault.Delay(time.Hour).Op(fault.OpSetData))
	s.Inject(fault.DelayReply(time.Hour).Op(fault.OpSync))
	for i, op := range []string{"create /x", "delete /x", "exists /", "set / d=1", "sync /",
		"ping"} {
		c := scriptOn(t, s.Dial)
		if i%2 == 0 {
			c.dial = scriptAt(s.Addr()).dial
		}
		c.do(t, "a connect")
		c.send(t, "a "+op)
		if i > 3 {
			c.do(t, "a drop")
		}
	}
	require.NoError(t, s.Await(t.Context(), func() bool { return s.Requests()[fault.OpPing] > 0 }))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for runtime.NumGoroutine() > before && ctx.Err() == nil {
		runtime.Gosched()
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}
