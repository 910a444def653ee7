package link_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/clock"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// owner is an Owner that takes whatever happens, unless a field says otherwise. The fields are set
// before the conn is used.
type owner struct {
	conn     *link.Conn
	joined   sync.WaitGroup
	patience time.Duration
	refusal  error           // what Replied returns
	down     func()          // runs in Down
	heard    func(time.Time) // runs in Heard
}

func (o *owner) MayConnect(int64, time.Time) (zxid int64, err error) { return 0, nil }
func (o *owner) Shaken(wire.ConnectResponse, time.Time) error        { return nil }
func (o *owner) CredentialsRefused(error)                            {}
func (o *owner) Up() bool                                            { return o.conn.Open() }
func (o *owner) Beat() time.Duration                                 { return time.Hour }
func (o *owner) Patience() time.Duration                             { return o.patience }
func (o *owner) Notified(zk.EventType, string, int64) bool           { return true }
func (o *owner) NotClosed(error)                                     {}

func (o *owner) Spawn(fn func()) bool {
	o.joined.Go(fn)
	return true
}

func (o *owner) Replied(*pipeline.Request, wire.ReplyHeader, int32, time.Time) error {
	return o.refusal
}

func (o *owner) Heard(at time.Time) {
	if o.heard != nil {
		o.heard(at)
	}
}

func (o *owner) Down(error) {
	if o.down != nil {
		o.down()
	}
}

// newConn returns a conn on which there was no handshake, so that it writes nothing, and the
// server's end of its socket.
func newConn(t *testing.T, o *owner) (*link.Conn, net.Conn) {
	near, far := net.Pipe()
	return newConnOf(t, o, near), far
}

func newConnOf(t *testing.T, o *owner, socket net.Conn) *link.Conn {
	o.conn = link.New(o, link.Common{
		Life:          t.Context(),
		Joined:        &o.joined,
		Clock:         new(clock.Clock),
		Numbers:       new(pipeline.Numbers),
		JuteMaxBuffer: 1 << 20,
	}, socket, "a:1", time.Second)
	return o.conn
}

// peer is the server's end of a conn's socket.
type peer struct {
	net.Conn
	t *testing.T
}

// connect returns an open conn with a reader, which fails with the test, and its server.
func connect(t *testing.T, o *owner) (*link.Conn, peer) {
	t.Helper()
	return connectBy(t, o, func(socket net.Conn) net.Conn { return socket })
}

// connectBy is connect with what by makes of the conn's end of the socket.
func connectBy(t *testing.T, o *owner, by func(net.Conn) net.Conn) (*link.Conn, peer) {
	t.Helper()
	near, far := net.Pipe()
	c := newConnOf(t, o, by(near))
	p := peer{far, t}
	t.Cleanup(func() {
		c.Fail(errors.New("the test is over"))
		o.joined.Wait()
	})
	const connectRequest = 44 // bytes, without the read-only flag
	request := wire.AppendInt(nil, connectRequest-4)
	go func() { _ = c.ShakeHands(append(request, make([]byte, connectRequest-4)...)) }()
	p.skip(connectRequest)
	o.joined.Go(func() {
		for c.Failure() == nil {
			_, _ = c.Receive()
		}
	})
	response := wire.AppendInt(wire.AppendInt(nil, 0), 10_000) // protocol version, timeout
	p.frame(wire.AppendBytes(wire.AppendLong(response, 7), make([]byte, 16)))
	synctest.Wait()
	return c, p
}

// skip reads n bytes.
func (p peer) skip(n int) {
	p.t.Helper()
	_, err := io.CopyN(io.Discard, p, int64(n))
	require.NoError(p.t, err)
}

// request reads a request.
func (p peer) request() (xid, op int32) {
	p.t.Helper()
	length := make([]byte, 4)
	_, err := io.ReadFull(p, length)
	require.NoError(p.t, err)
	body := make([]byte, binary.BigEndian.Uint32(length))
	_, err = io.ReadFull(p, body)
	require.NoError(p.t, err)
	d := wire.Decoder{B: string(body)}
	return d.Int(), d.Int()
}

// frame writes a frame.
func (p peer) frame(body []byte) {
	p.t.Helper()
	_, err := p.Write(append(wire.AppendInt(nil, int32(len(body))), body...))
	require.NoError(p.t, err)
}

// replyHeader returns the header of the reply to xid, which says OK.
func replyHeader(xid int32) []byte {
	return wire.AppendInt(wire.AppendLong(wire.AppendInt(nil, xid), 1), wire.CodeOK)
}
