package zktest_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestInMemoryConnectionHonoursDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, _ *script) {
		nc, err := s.Dial("tcp", s.Addr(), time.Second)
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, nc.SetReadDeadline(start.Add(3*time.Second)))
		_, err = nc.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(start))
		var ne net.Error
		require.True(t, errors.As(err, &ne) && ne.Timeout())
		_, err = nc.Read(nil)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		// A deadline set during a call applies to that call.
		require.NoError(t, nc.SetDeadline(time.Time{}))
		go func() {
			time.Sleep(time.Second)
			_ = nc.SetReadDeadline(time.Now().Add(time.Second))
		}()
		_, err = nc.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 5*time.Second, time.Since(start))
		require.NoError(t, nc.Close())
		_, err = nc.Write([]byte{1})
		require.ErrorIs(t, err, io.ErrClosedPipe)
		_, err = nc.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

func TestInMemoryConnectionIsBufferedUpToAnEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		in := s.Inject(fault.Freeze()) // the server reads one more frame and then stops reading
		nc := c.sessions["a"].nc
		// a ping with a long body of zeros: the length of the rest, an xid, and the operation
		frame := make([]byte, 1000)
		binary.BigEndian.PutUint32(frame, 996)
		binary.BigEndian.PutUint32(frame[8:], uint32(fault.OpPing))
		require.NoError(t, nc.SetWriteDeadline(time.Now().Add(time.Second)))
		sent := 0
		for range 10000 {
			n, err := nc.Write(frame)
			sent += n
			if err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				break
			}
		}
		assert.Greater(t, sent, 256<<10)
		assert.Less(t, sent, 2<<20)
		in.Remove()
		synctest.Wait()
		// the first ping, and each frame that was sent whole
		assert.Equal(t, 1+sent/1000, s.Requests()[fault.OpPing])
	})
}
