package link

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/clock"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
	"github.com/zklock/locker/session"
)

// Conn is one network connection of a session.
//
// The driver (package driver) owns the socket. It has a connection dialled (package dial), sends
// its connect request through ShakeHands, and calls Receive in a loop, which returns to it only the
// replies to its own requests. It dials again when the Conn has failed. All other requests are
// encoded by the packages above: so they take a context, several can be sent at a time, the zxids
// of replies are seen, and watches can be removed.
//
// Two goroutines work on a Conn: the driver's reader, in Receive (read.go), and run (write.go). A
// call also writes, what is queued, if no reply is due (Flush).
type Conn struct {
	Server string // its address

	common   Common
	owner    Owner
	socket   net.Conn
	limit    time.Duration   // of the handshake, and of each answer to credentials
	failConn func(why error) // Fail, for requests: pipeline.Request.FailConn

	began time.Time // when the connect request was sent; set before run starts

	// Used only by the goroutine that calls Receive:
	in          *bufio.Reader
	frameBuffer []byte // for the frame that is being read; grows up to maxFrameBuffer

	writesAtOnce bool // see WritesAtOnce

	// handling is held while a reply is handled, from when its request is taken from the pipeline
	// until the request's calls have the reply. abandon waits for that.
	handling sync.Mutex

	mu    sync.Mutex // guards what follows
	state connState
	pipe  *pipeline.Pipeline
	err   error // why the conn has failed

	// isWriting is set while somebody writes a piece, run or a call, to whom out belongs then.
	isWriting bool
	out       []byte

	wake chan struct{} // run is to write what is queued, or the conn has failed; capacity 1
}

// Common is what the conns of one session have in common.
type Common struct {
	Life          context.Context // ends with the session
	Joined        *sync.WaitGroup // counts what runs for a conn; the session waits for it
	Clock         *clock.Clock
	Numbers       *pipeline.Numbers
	JuteMaxBuffer int
	Auth          []Auth
	SASL          session.SASL // may be nil
}

// Owner is the session, as a conn sees it. Its methods are called without the conn's mutex held.
// Replied runs while a reply is handled: a call that gives up waits until Replied has returned.
type Owner interface {
	// MayConnect checks the connect request for session id that is about to be sent, and returns
	// the last zxid seen.
	MayConnect(id int64, sent time.Time) (zxid int64, err error)
	// Shaken takes the answer to the handshake that was sent at sent.
	Shaken(r wire.ConnectResponse, sent time.Time) error
	// Spawn runs fn in a goroutine of the session. It returns false if the session is over.
	Spawn(fn func()) bool
	// CredentialsRefused says that the server refuses the credentials.
	CredentialsRefused(err error)
	// Up puts the conn to use: the owner opens it. It returns false if the session is over, or the
	// conn has failed.
	Up() bool
	// Beat does what the heartbeat has to do on the open conn, and returns the time until it has
	// more to do.
	Beat() time.Duration
	// Patience bounds the wait for a reply.
	Patience() time.Duration
	// Heard says that bytes of a long reply arrived at time at.
	Heard(at time.Time)
	// Replied counts the reply to r, which arrived at time at. verdict is what the reply as a whole
	// says: the code in the header or, in the reply to a multi, that of the operation that decides
	// (wire.Verdict).
	//
	// An error gives up the conn, and r counts as never sent: its call sends it again, even a
	// write. So return one only if r was certainly not carried out.
	Replied(r *pipeline.Request, header wire.ReplyHeader, verdict int32, at time.Time) error
	// Notified takes a notification. It returns false if the conn is not in use any more.
	Notified(event zk.EventType, path string, zxid int64) bool
	// Down says that the conn has failed, before any call learns of it.
	Down(err error)
	// NotClosed says that the socket could not be closed.
	NotClosed(err error)
}

// connState is where a conn is in its life. It moves from one state to the next, and from each to
// connFailed:
//
//	connDialled     → connShaking      ShakeHands: the connect request is about to be sent
//	connShaking     → connEstablished  handshake: the server has the session; credentials and
//	                                   watches are sent first
//	connEstablished → connOpen         Open, by Owner.Up: the requests of all calls may be sent
//	any             → connFailed       Fail
type connState uint8

const (
	connDialled connState = iota
	connShaking
	connEstablished
	connOpen
	connFailed
)

// move advances the conn from the given state to the next one. It returns false if the conn is in
// another state.
func (c *Conn) move(from connState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != from {
		return false
	}
	c.state++
	return true
}

// readerBuffer holds the replies to some 20 lock requests, which one read takes from the socket.
// Longer replies bypass it.
const readerBuffer = 2 << 10

// New returns the conn of a socket that has just been dialled. limit bounds the handshake, and each
// answer to credentials.
func New(owner Owner, common Common, socket net.Conn, server string, limit time.Duration) *Conn {
	c := &Conn{
		Server: server,
		common: common,
		owner:  owner,
		socket: socket,
		limit:  limit,
		in:     bufio.NewReaderSize(socket, readerBuffer),
		pipe:   pipeline.New(common.Numbers, common.JuteMaxBuffer),
		wake:   make(chan struct{}, 1),

		writesAtOnce: writesAtOnce(socket),
	}
	c.failConn = c.Fail
	return c
}

// Offsets in the driver's connect request.
const (
	connectZxid    = 8
	connectSession = 20
)

// ShakeHands sends the driver's connect request, and puts the last zxid into it, which the driver
// does not know: with that, a server that lags behind what we have seen refuses the connection.
func (c *Conn) ShakeHands(frame []byte) error {
	c.began = c.common.Clock.Stamp() // before the bytes leave
	if !c.move(connDialled) {
		return c.Failure()
	}
	err := c.sendConnect(frame)
	if err != nil {
		c.Fail(err)
	}
	return err
}

func (c *Conn) sendConnect(frame []byte) error {
	id := int64(binary.BigEndian.Uint64(frame[connectSession:]))
	zxid, err := c.owner.MayConnect(id, c.began)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(frame[connectZxid:], uint64(zxid))
	if _, err := c.socket.Write(frame); err != nil {
		return c.socketError(err)
	}
	return nil
}

// handshake checks the connect response, informs the owner, and starts run.
func (c *Conn) handshake(body []byte) error {
	r, err := wire.ParseConnectResponse(body)
	if err != nil {
		return fmt.Errorf("%w: handshake: %w", failure.ErrGarbled, err)
	}
	if err := c.owner.Shaken(r, c.began); err != nil {
		return err
	}
	// The owner has counted the answer. So from here on the driver has to get it too, unless the
	// conn has failed or the session is over.
	if !c.move(connShaking) {
		return c.Failure()
	}
	if err := c.socket.SetDeadline(time.Time{}); err != nil { // it bounded the handshake
		// The server has hung up after its answer.
		c.Fail(c.socketError(err))
		return nil
	}
	if !c.owner.Spawn(c.run) {
		return failure.ErrClosed
	}
	return nil
}

// Open opens the conn for the requests of all calls. It returns false if the conn has failed.
func (c *Conn) Open() bool { return c.move(connEstablished) }

func (c *Conn) established() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == connEstablished || c.state == connOpen
}

// Fail ends the conn, for the reason err. Only the first call has an effect. It
//
//  1. takes all requests out of the pipeline, which takes no more;
//  2. informs the owner, so that no call finds this conn any more;
//  3. completes the requests, which wakes their calls: they go to the next conn, or fail with err;
//  4. has the socket closed, which it does not wait for: closing a user's connection, or one of
//     package tls, may block.
func (c *Conn) Fail(err error) {
	c.mu.Lock()
	if c.state == connFailed {
		c.mu.Unlock()
		return
	}
	c.state, c.err = connFailed, err
	// The session joins this call, since nothing else might: the caller may be the driver's writer,
	// for which the driver's loop does not wait any more. A WaitGroup demands that this Add comes
	// before the session's Wait. It does: before that Wait, the session or the driver's loop has
	// itself called Fail on this conn. Either that was this call, or it found connFailed under mu,
	// and so came after this Add.
	c.common.Joined.Add(1)
	defer c.common.Joined.Done()
	aborted := c.pipe.Abort()
	c.mu.Unlock()
	poke(c.wake) // run ends

	c.owner.Down(err)
	aborted.Complete(c.Server, err)
	c.common.Joined.Go(c.hangUp)
}

// hangUp closes the socket, below TLS: TLS would first send a goodbye, and wait until the server
// has taken that.
func (c *Conn) hangUp() {
	inner := c.socket
	if secure, ok := inner.(interface{ NetConn() net.Conn }); ok {
		inner = secure.NetConn()
	}
	if err := inner.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.owner.NotClosed(fmt.Errorf("closing the connection: %w", err))
	}
}

// Failure returns why the conn has failed, or nil if it has not.
func (c *Conn) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Quiet returns for how long nothing has been sent, and for how long nothing has been heard
// although a reply is due (0 if none is due).
func (c *Conn) Quiet(now time.Time) (unsent, unheard time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pipe.Quiet(now)
}

// Waiting returns how many requests wait to be written, and how many wait for their replies.
func (c *Conn) Waiting() (queued, pending int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pipe.Waiting()
}
