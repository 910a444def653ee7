package session_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Scenario 52: a request beyond the server's limit is refused before it leaves, by its encoded
// size, to the byte.
func TestARequestBeyondTheServersLimitNeverLeaves(t *testing.T) {
	const limit = session.DefaultJuteMaxBuffer
	everywhere(t, func(t *testing.T, g *ground) {
		_, err := g.Create(g.ctx, g.path("/x"), nil, session.Persistent, everybody)
		require.NoError(t, err)
		over := make([]byte, limit)
		for name, call := range map[string]func() error{
			"create": func() error {
				_, err := g.Create(g.ctx, g.path("/y"), over, session.Persistent, everybody)
				return err
			},
			"create and list": func() error {
				_, _, err := createAndList(g.ctx, g, g.path("/y"), over, session.Persistent,
					everybody)
				return err
			},
			"create all": func() error {
				return g.CreateAll(g.ctx, g.path("/y/z"), over, session.Persistent, everybody)
			},
			"set": func() error {
				_, err := g.Set(g.ctx, g.path("/x"), over, -1)
				return err
			},
			"multi": func() error {
				_, err := g.Multi(g.ctx,
					session.OpSet{Path: g.path("/x"), Data: over[:limit/2], Version: -1},
					session.OpCreate{Path: g.path("/y"), Data: over[:limit/2], ACL: everybody})
				return err
			},
		} {
			err := call()
			require.ErrorIs(t, err, session.ErrTooLarge, name)
			require.ErrorIs(t, err, session.ErrNotSent, name)
			require.NotErrorIs(t, err, session.ErrUnknownOutcome, name)
			require.ErrorContains(t, err, "and 1048575 is the limit", name)
		}
		require.Equal(t, session.Connected, g.State(), "no connection was lost")

		// Length and header (8), path and its length, the data's length, the version.
		most := limit - 8 - 4 - len(g.outside("/x")) - 4 - 4
		_, err = g.Set(g.ctx, g.path("/x"), over[:most+1], -1)
		require.ErrorIs(t, err, session.ErrTooLarge,
			"one byte more than a server takes, the chroot counted")
		_, err = g.Set(g.ctx, g.path("/x"), over[:most], -1)
		require.NoError(t, err, "as much as a server takes")
	})
}

func TestThePacketLimitIsThatOfTheEnsemble(t *testing.T) {
	beyond := int64(1) << 31 // negative where an int has 32 bits
	for _, limit := range []int{1023, -1, int(beyond)} {
		_, err := session.Start("a:1", session.Config{JuteMaxBuffer: limit})
		require.ErrorIs(t, err, session.ErrConfig)
		require.ErrorContains(t, err, "jute.maxbuffer")
	}
	srv := zktest.Run(t, zktest.WithJuteMaxBuffer(4096))
	s := open(t, srv, func(c *session.Config) { c.JuteMaxBuffer = 4096 })
	_, err := s.Create(within(t, soon), "/x", make([]byte, 4096), session.Persistent, everybody)
	require.ErrorIs(t, err, session.ErrTooLarge)
	require.ErrorContains(t, err, "4096 is the limit")
	require.Equal(t, session.Connected, s.State())
}

// longReply returns the first 20 bytes of a successful reply to xid that has n bytes; the caller
// sends the rest.
func longReply(xid int32, n int) []byte {
	return append(be32(be32(nil, int32(n)), xid), make([]byte, 12)...)
}

// Scenario 51: a reply beyond the frame limit fails its call and nothing else: no connection, no
// other call, no hold; and it takes no memory.
func TestAReplyThatIsTooLongCostsOneCall(t *testing.T) {
	const size = 3 * session.MaxFrame
	allocated := func() uint64 {
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		return mem.TotalAlloc
	}
	var least atomic.Uint64 // bytes that the process allocated while a long reply arrived
	least.Store(math.MaxUint64)
	withPeer(t, func(c *peerConn) {
		if !c.hello() {
			return
		}
		c.welcome(8*time.Second, 77)
		for {
			b := c.read()
			if len(b) < 8 {
				return
			}
			xid, op := int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))
			switch {
			case op == 12 && bytes.Contains(b, []byte("/long")), op == 2:
				rest := make([]byte, 1<<20)
				before := allocated()
				c.raw(longReply(xid, size)...)
				for sent := 16; sent < size; sent += len(rest) {
					c.raw(rest[:min(len(rest), size-sent)]...)
				}
				least.Store(min(least.Load(), allocated()-before))
			case op == 11, op == 14:
				c.reply(xid, 0, nil)
			default:
				c.reply(xid, -101, nil)
			}
		}
	}, func(t *testing.T, p *peer, s *session.Session) {
		ctx := within(t, soon)
		other := make(chan error, 1)
		go func() {
			_, err := s.Exists(ctx, "/x")
			other <- err
		}()
		for range 3 {
			_, _, err := s.List(ctx, "/long")
			require.ErrorIs(t, err, session.ErrTooLarge)
			require.NotErrorIs(t, err, session.ErrUnknownOutcome)
			require.ErrorContains(t, err,
				"list /long: session: too large: a reply of 100663296 bytes, and 33554432 is the limit")
		}
		require.ErrorIs(t, <-other, zk.ErrNoNode)
		_, err := listAll(ctx, s, []string{"/a", "/long", "/b"})
		require.ErrorIs(t, err, session.ErrTooLarge)

		err = s.Delete(ctx, "/x", -1)
		require.ErrorIs(t, err, session.ErrTooLarge)
		require.ErrorIs(t, err, session.ErrUnknownOutcome,
			"a write's reply that can't be read says too little")
		require.Equal(t, 1, p.count(), "no connection was given up")
		require.Less(t, least.Load(), uint64(size/8),
			"bytes that were allocated while 96 MB arrived")
	})
}

// Of the reply to a write that is too long only the header is read: its code says whether the write
// was done, or refused, or that nobody knows.
func TestTheCodeOfAReplyThatIsTooLongSaysWhetherTheWriteMayBeDone(t *testing.T) {
	const size = session.MaxFrame + 1
	writes := map[string]func(context.Context, *session.Session) error{
		"delete": func(ctx context.Context, s *session.Session) error {
			return s.Delete(ctx, "/x", -1)
		},
		"multi": func(ctx context.Context, s *session.Session) error {
			_, err := s.Multi(ctx, session.OpDelete{Path: "/x", Version: -1})
			return err
		},
	}
	for code, mayBeDone := range map[int32]bool{0: true, -1: true, -5: true, -101: false} {
		for name, write := range writes {
			t.Run(fmt.Sprint(name, code), func(t *testing.T) {
				withPeer(t, once(func(c *peerConn, xid int32) {
					header := longReply(xid, size)
					c.raw(be32(header[:len(header)-4], code)...)
					c.raw(make([]byte, size-(len(header)-4))...)
				}), func(t *testing.T, p *peer, s *session.Session) {
					err := write(within(t, soon), s)
					require.ErrorIs(t, err, session.ErrTooLarge)
					isUnknown := errors.Is(err, session.ErrUnknownOutcome)
					require.Equal(t, mayBeDone, isUnknown, "%v", err)
					require.NotErrorIs(t, err, session.ErrNoReply, "it was answered")
					require.Equal(t, 1, p.count(), "the connection is not given up")
				})
			})
		}
	}
}

// Scenario 57: a reply that takes longer than the patience, and longer than the session timeout, is
// read as long as its bytes arrive.
func TestALongListOnASlowLineIsRead(t *testing.T) {
	const rate = 600 << 10 // bytes a second
	var names []string
	for range 6 << 10 {
		names = append(names, strings.Repeat("n", 1020))
	}
	body := be32(nil, int32(len(names)))
	for _, n := range names {
		body = append(be32(body, int32(len(n))), n...)
	}
	body = append(body, make([]byte, 68)...) // stat
	withPeer(t, func(c *peerConn) {
		if !c.hello() {
			return
		}
		c.welcome(8*time.Second, 77)
		for {
			xid, op, ok := c.request()
			if !ok {
				return
			}
			if op != 12 {
				c.reply(xid, -101, nil)
				continue
			}
			deaf := c.deaf() // what the client sends meanwhile arrives, but is not answered
			frame := frameOf(append(be32(be64(be32(nil, xid), 1), 0), body...))
			for ; len(frame) > 0; time.Sleep(time.Second / 100) {
				n := min(len(frame), rate/100)
				c.raw(frame[:n]...)
				frame = frame[n:]
			}
			<-deaf
			return
		}
	}, func(t *testing.T, p *peer, s *session.Session) {
		began := time.Now()
		got, _, err := s.List(within(t, time.Minute), "/long")
		require.NoError(t, err)
		require.Equal(t, names, got)
		require.Greater(t, time.Since(began), 8*time.Second, "longer than the session timeout")
		require.Equal(t, 1, p.count())
	})
}

// A server that goes on sending notifications, and answers no request, counts as silent.
func TestAFloodOfNotificationsIsNoAnswer(t *testing.T) {
	withPeer(t, once(func(c *peerConn, _ int32) {
		deaf := c.deaf()
		for {
			select {
			case <-deaf:
				return
			case <-time.After(100 * time.Millisecond):
				c.reply(-1, 0,
					append(be32(be32(be32(nil, 3), 3), 8<<10),
						bytes.Repeat([]byte("/aaaaaaa"), 1<<10)...))
			}
		}
	}), func(t *testing.T, p *peer, s *session.Session) {
		began := time.Now()
		_, err := s.Exists(within(t, soon), "/x")
		require.ErrorIs(t, err, zk.ErrNoNode, "answered on the next connection")
		require.Equal(t, 2, p.count())
		require.LessOrEqual(t, time.Since(began), 2*session.Patience(8*time.Second))
	})
}

// A reply whose header is an error, and whose results are all successes, is not believed.
func TestAMultiThatWasRefusedIsNoSuccessWhateverItsBodySays(t *testing.T) {
	withPeer(t, once(func(c *peerConn, xid int32) {
		// a delete: its type, not the last, no error
		body := be32(append(be32(nil, 2), 0), 0)
		c.reply(xid, -5, be32(append(be32(body, -1), 1), -1)) // the end
	}), func(t *testing.T, _ *peer, s *session.Session) {
		_, err := s.Multi(within(t, soon), session.OpDelete{Path: "/x", Version: -1})
		require.ErrorIs(t, err, session.ErrGarbled)
		require.ErrorIs(t, err, session.ErrUnknownOutcome)
	})
}

// Scenario 53: a call of 100,000 requests ends with its context, and delays no other call, neither
// while it lasts nor when it is given up.
func TestACallOfManyRequestsEndsWithItsContext(t *testing.T) {
	srv := zktest.Run(t)
	s := open(t, srv)
	paths := make([]string, 100_000)
	for i := range paths {
		paths[i] = "/x"
	}
	hold := srv.Inject(fault.HoldReply().Op(fault.OpGetChildren2).After(1000))
	// If each request that is given up is searched for in a list of 100,000, this takes seven
	// seconds.
	const bound = 2 * time.Second
	late := time.Hour
	for trial := 0; trial < 5 && late > bound; trial++ {
		// one must be quick, on however busy a machine
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := listAll(ctx, s, paths)
		end, _ := ctx.Deadline()
		late = min(late, time.Since(end))
		cancel()
		require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	}
	t.Logf("returned %v after its deadline", late)
	require.Less(t, late, bound)
	queued, pending := s.QueuedCalls()
	require.Zero(t, queued, "what was not sent is gone")
	require.LessOrEqual(t, pending, 256+8)
	hold.Remove()
	_, err := s.Exists(within(t, soon), "/")
	require.NoError(t, err)
}
