package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Rig is a session without a driver, whose connection is to the test. The test sees each request
// that the session writes, and decides when it is answered: the reply is handled, as by the
// driver's reader, in the goroutine that calls Answer.
type Rig struct {
	*Session
	conn   *connection
	socket *rigSocket

	// BeforeReply, if set, runs once: when the reader has taken the next reply, and before the
	// session learns of it.
	BeforeReply func()
}

// rigTimeout is so long that no heartbeat and no patience disturb a test.
const rigTimeout = 12 * time.Hour

// NewRig returns a connected session.
func NewRig() *Rig {
	cfg, err := Config{
		Timeout:  rigTimeout,
		TickTime: 2 * time.Second,
		Logger:   slog.New(slog.DiscardHandler),
		Dial: func(string, string, time.Duration) (net.Conn, error) {
			return nil, errors.New("a rig has no driver that dials")
		},
	}.check("rig:1/app")
	if err != nil {
		panic(err)
	}
	r := &Rig{Session: newSession(cfg)}
	r.Reconnect()
	return r
}

// Stop ends the session and joins what it has running.
func (r *Rig) Stop() {
	r.end(ErrClosed)
	r.deadline.Stop()
	r.conn.Fail(ErrClosed)
	r.bg.Wait()
}

// Reconnect gives the session another connection, and returns when that is in use.
func (r *Rig) Reconnect() {
	r.dial()
	r.handshake()
	for range 2 {
		if c, err := r.awaitConnection(r.ctx); err == nil && c == r.conn {
			return
		}
	}
	panic("the rig's session does not use its connection")
}

// dial gives the session a socket, on which nothing has been sent.
func (r *Rig) dial() {
	r.socket = &rigSocket{written: make(chan struct{}, 1)}
	r.conn = &connection{s: r.Session}
	r.conn.Conn = link.New(rigOwner{r.conn, r}, r.common, r.socket, "rig:1", time.Second)
	if !r.dialled(r.conn) {
		panic("the rig's session is over")
	}
}

// handshake sends the connect request, as the driver does, and answers it.
func (r *Rig) handshake() {
	// length, version, zxid
	request := wire.AppendLong(wire.AppendInt(wire.AppendInt(nil, 0), 0), 0)
	request = wire.AppendInt(request, int32(rigTimeout/time.Millisecond))
	request = wire.AppendLong(request, r.ID())
	request = wire.AppendBytes(request, make([]byte, 16))
	binary.BigEndian.PutUint32(request, uint32(len(request)-4))
	if err := r.conn.ShakeHands(request); err != nil {
		panic(err)
	}
	r.socket.forget() // the connect request
	response := wire.AppendInt(wire.AppendInt(nil, 0), int32(rigTimeout/time.Millisecond))
	response = wire.AppendBytes(wire.AppendLong(response, 7), make([]byte, 16))
	if err := r.receive(response); err != nil {
		panic(err)
	}
}

// receive supplies a frame in parts, and handles it.
func (r *Rig) receive(parts ...[]byte) error {
	size := 0
	readers := make([]io.Reader, 0, len(parts))
	for _, part := range parts {
		size += len(part)
		readers = append(readers, bytes.NewReader(part))
	}
	length := bytes.NewReader(wire.AppendInt(nil, int32(size)))
	r.socket.incoming = io.MultiReader(length, io.MultiReader(readers...))
	_, err := r.conn.Receive()
	return err
}

// Written is signalled when requests other than pings have been written, and when the connection
// has been closed.
func (r *Rig) Written() <-chan struct{} { return r.socket.written }

// Failed reports whether the connection has been given up.
func (r *Rig) Failed() bool { return r.conn.Failure() != nil }

// Answer answers each request that has been written with code and body, and pings with OK.
func (r *Rig) Answer(code int32, body []byte) error {
	for _, request := range r.socket.requests() {
		var err error
		if request.op == wire.OpPing {
			err = r.receive(replyHeader(request.xid, wire.CodeOK))
		} else {
			err = r.receive(replyHeader(request.xid, code), body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func replyHeader(xid, code int32) []byte {
	return wire.AppendInt(wire.AppendLong(wire.AppendInt(nil, xid), 99), code)
}

// Notify supplies a notification, with the path as the server knows it.
func (r *Rig) Notify(typ zk.EventType, path string) error {
	body := wire.AppendInt(wire.AppendInt(nil, int32(typ)), 3)
	return r.receive(replyHeader(wire.XidNotification, wire.CodeOK), wire.AppendString(body, path))
}

// Break makes the connection fail.
func (r *Rig) Break(err error) { r.conn.Fail(err) }

// End ends the session.
func (r *Rig) End(cause error) { r.end(cause) }

// OnEnd has fn called, once, when the session has just ended.
func (r *Rig) OnEnd(fn func()) {
	end := r.end
	r.end = func(cause error) {
		r.end = end
		end(cause)
		fn()
	}
}

// AwaitAbandoned returns when returned reports that a call has returned, or when the call waits for
// the reader.
func (r *Rig) AwaitAbandoned(returned func() bool) {
	r.until(func() bool { return returned() || abandons() })
}

// abandons reports whether a goroutine of the process is giving up requests.
func abandons() bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "link.(*Conn).abandon(")
}

// until waits for cond.
func (r *Rig) until(cond func() bool) {
	began := time.Now()
	for !cond() {
		if time.Since(began) > time.Minute {
			panic("the rig's session does not get there")
		}
		runtime.Gosched()
	}
}

// ReadAll reads a whole stream of frames as a conn after its handshake does, until its end or its
// first bad frame, and returns how many bytes the driver has seen.
func ReadAll(stream io.Reader) (forwarded int, err error) {
	r := NewRig()
	defer r.Stop()
	r.socket.incoming = stream
	for {
		frame, err := r.conn.Receive()
		forwarded += len(frame)
		if err != nil {
			return forwarded, err
		}
	}
}

// rigOwner is a connection that lets the rig know of a reply first.
type rigOwner struct {
	*connection
	r *Rig
}

func (o rigOwner) Replied(
	r *pipeline.Request, header wire.ReplyHeader, verdict int32, at time.Time,
) error {
	if before := o.r.BeforeReply; before != nil && r.Op != wire.OpPing {
		o.r.BeforeReply = nil
		before()
	}
	return o.connection.Replied(r, header, verdict, at)
}

// rigSocket is the session's end of a connection to the test. It takes all that is written. What
// the session reads has been put into incoming before; behind it is the end of the stream.
type rigSocket struct {
	net.Conn // nil: no other method is called

	incoming io.Reader
	written  chan struct{} // see Rig.Written; capacity 1

	mu       sync.Mutex // guards what follows
	rest     []byte     // the beginning of a frame
	outgoing []rigRequest
}

// rigRequest is one request that has been written.
type rigRequest struct{ xid, op int32 }

// requests returns the requests that have been written since the last call.
func (s *rigSocket) requests() []rigRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.outgoing
	s.outgoing = nil
	return all
}

// forget makes nothing have been written.
func (s *rigSocket) forget() {
	s.requests()
	select {
	case <-s.written:
	default:
	}
}

func (s *rigSocket) Read(b []byte) (int, error) { return s.incoming.Read(b) }

func (s *rigSocket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, b...)
	for {
		d := wire.Decoder{B: string(s.rest)}
		frame := wire.Decoder{B: d.Text()}
		if d.Err != nil {
			return len(b), nil
		}
		s.rest = []byte(d.B)
		request := rigRequest{frame.Int(), frame.Int()}
		s.outgoing = append(s.outgoing, request)
		if request.op != wire.OpPing {
			s.signal()
		}
	}
}

func (s *rigSocket) SetDeadline(time.Time) error      { return nil }
func (s *rigSocket) SetWriteDeadline(time.Time) error { return nil }
func (s *rigSocket) Close() error                     { s.signal(); return nil }

func (s *rigSocket) signal() {
	select {
	case s.written <- struct{}{}:
	default:
	}
}
