package link

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/clock"
	"github.com/zklock/locker/internal/session/internal/wire"
	"github.com/zklock/locker/session"
)

// Conn is one network connection of a session. ZooKeeper answers a connection's requests strictly in order. So a conn has
// two queues: requests to be written, and requests that wait for their replies. Each reply must belong to the head of the
// second.
//
// The driver (driver.go) owns the connection: it dials, sends its connect request through ShakeHands, calls receive in a
// loop, which returns the replies to its own requests, and dials again when the conn has failed. This package encodes all
// other requests itself: so they take a context, several can be sent at a time, the zxids of replies are seen, and watches
// can be removed.
//
// Two goroutines work on a conn: the driver's reader, in receive (connread.go), and run (connwrite.go).
type Conn struct {
	Common
	owner  Owner
	net    net.Conn
	Server string
	limit  time.Duration // of the handshake, and of each answer to credentials

	began time.Time     // when the connect request was sent; set before run starts
	in    *bufio.Reader // used only by the goroutine that calls ShakeHands and receive

	// handling is held while a reply is handled, from when it is taken until its calls have it: abandon waits for that.
	handling sync.Mutex

	mu         sync.Mutex // guards what follows
	state      connState
	queue      requestQueue     // to be written
	quarantine int              // in how many more groups untried creates keep apart: see request.untried
	pending    requestQueue     // written, in order
	replies    map[replyKey]int // the length of the latest reply to a list or read
	lastSent   time.Time
	progressAt time.Time // when bytes of a reply, or of a long request, last passed
	err        error

	wake chan struct{} // something was queued, or the conn has failed; capacity 1
}

// Common is what the conns of one session have in common.
type Common struct {
	Session       context.Context // ends with the session
	Joined        *sync.WaitGroup // of what a conn has running
	Clock         *clock.Clock
	Numbered      *atomic.Uint32 // requests
	JuteMaxBuffer int
	Auth          []Auth
	SASL          session.SASL // nil: none
}

// Owner is the session, as a conn sees it. It is called without the conn's mutex held.
type Owner interface {
	// MayConnect checks the connect request for session id that is about to be sent, and returns the last zxid seen.
	MayConnect(id int64, sent time.Time) (zxid int64, err error)
	// Shaken takes the answer to the handshake that was sent at sent.
	Shaken(r wire.ConnectResponse, sent time.Time) error
	// Spawn runs fn in a goroutine of the session, unless that is over.
	Spawn(fn func()) bool
	// Refused says that the server refuses the credentials.
	Refused(err error)
	// Up puts the conn to use: the owner opens it. False: the session is over, or the conn has failed.
	Up() bool
	// Beat does what the heartbeat has to do on the open conn, and returns the time until it has more to do.
	Beat() time.Duration
	// Patience bounds the wait for a reply.
	Patience() time.Duration
	// Heard says that bytes of a long reply arrived at time at.
	Heard(at time.Time)
	// Replied counts the reply to r, with the verdict code, which arrived at time at. An error gives up the conn.
	Replied(r *Request, header wire.ReplyHeader, code int32, at time.Time) error
	// Notified takes a notification. False: the conn is not in use any more.
	Notified(event zk.EventType, path string, zxid int64) bool
	// Down says that the conn has failed, before any call learns of it.
	Down(err error)
	// NotClosed says that the socket could not be closed.
	NotClosed(err error)
}

// connState is where a conn is in its life. It moves from one state to the next, and from each to connFailed:
//
//	connDialled     → connShaking      ShakeHands: the connect request is about to be sent
//	connShaking     → connEstablished  handshake: the server has the session; credentials and watches are sent first
//	connEstablished → connOpen         open, by Owner.Up: the requests of all calls may be sent
//	any             → connFailed       fail
type connState uint8

const (
	connDialled connState = iota
	connShaking
	connEstablished
	connOpen
	connFailed
)

// move advances the conn from the given state to the next one; false: it is in another state.
func (c *Conn) move(from connState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != from {
		return false
	}
	c.state++
	return true
}

const (
	firstXid = 0x40000000 // keeps our numbers of requests apart from the driver's, which count up from one

	// readerBuffer holds the replies to some 20 lock requests, which one read takes from the socket. Longer replies bypass it.
	readerBuffer = 2 << 10
)

func New(owner Owner, common Common, netConn net.Conn, server string, limit time.Duration) *Conn {
	return &Conn{Common: common, owner: owner, net: netConn, Server: server, limit: limit, in: bufio.NewReaderSize(netConn, readerBuffer), replies: map[replyKey]int{},
		wake: make(chan struct{}, 1)}
}

// ShakeHands sends the driver's connect request, and puts the last zxid into it, which the driver does not know: with that,
// a server that lags behind what we have seen refuses the connection.
func (c *Conn) ShakeHands(frame []byte) error {
	c.began = c.Clock.Stamp() // before the bytes leave
	if !c.move(connDialled) {
		return c.Failure()
	}
	zxid, err := c.owner.MayConnect(int64(binary.BigEndian.Uint64(frame[20:])), c.began)
	if err == nil {
		binary.BigEndian.PutUint64(frame[8:], uint64(zxid))
		if _, err = c.net.Write(frame); err != nil {
			err = c.readError(err)
		}
	}
	if err != nil {
		c.Fail(err)
	}
	return err
}

// handshake checks the connect response, informs the session, and starts run.
func (c *Conn) handshake(body []byte) error {
	r, err := wire.ParseConnectResponse(body)
	if err != nil {
		return fmt.Errorf("%w: handshake: %w", failure.ErrGarbled, err)
	}
	if err := c.owner.Shaken(r, c.began); err != nil { // after this the driver must get the response too
		return err
	}
	if !c.move(connShaking) {
		return c.Failure()
	}
	if err := c.net.SetDeadline(time.Time{}); err != nil { // it bounded the handshake
		c.Fail(c.readError(err)) // the server has hung up after its answer, which counts all the same
		return nil
	}
	if !c.owner.Spawn(c.run) {
		return failure.ErrClosed
	}
	return nil
}

// Open opens the conn for the requests of all calls. False: it has failed.
func (c *Conn) Open() bool { return c.move(connEstablished) }

func (c *Conn) established() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == connEstablished || c.state == connOpen
}

// Fail ends the conn, once: it informs the session, fails every request, and closes the socket.
func (c *Conn) Fail(err error) {
	c.mu.Lock()
	if c.state == connFailed {
		c.mu.Unlock()
		return
	}
	c.state, c.err = connFailed, err
	// shutdown has to join this call: the driver's writer may make it when the driver's loop no longer waits for the writer.
	// Add comes before shutdown's Wait, since by then shutdown, or the driver's loop, has seen connFailed under mu.
	c.Joined.Add(1)
	defer c.Joined.Done()
	unsent, pending := c.queue, c.pending
	c.queue, c.pending = requestQueue{}, requestQueue{}
	c.mu.Unlock()
	poke(c.wake)

	// First, so that a call that wakes, whatever woke it, does not find this conn again.
	c.owner.Down(err)
	for r := unsent.pop(); r != nil; r = unsent.pop() {
		r.fail(failure.ErrNotSent)
	}
	for r := pending.pop(); r != nil; r = pending.pop() {
		c.failCalls(r, err)
	}
	c.Joined.Go(c.hangUp) // closing a user's connection, or one of package tls, may block; the caller must not
}

func (c *Conn) failCalls(r *Request, err error) {
	for _, w := range r.calls() {
		if r.unreadable != nil {
			w.shares = 0
		}
		if r.unreadable != nil && r.Op != wire.OpMultiRead { // each list is sent again alone, to find the unreadable one
			w.unreadable = r.unreadable
			w.fail(fmt.Errorf("%s: %w", c.Server, r.unreadable))
		} else {
			w.fail(fmt.Errorf("%w (%s: %w)", failure.ErrConnection, c.Server, err))
		}
	}
}

// hangUp closes the socket, below TLS: TLS would first send a goodbye, and wait until the server has taken that.
func (c *Conn) hangUp() {
	inner := c.net
	if secure, ok := inner.(interface{ NetConn() net.Conn }); ok {
		inner = secure.NetConn()
	}
	if err := inner.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.owner.NotClosed(fmt.Errorf("closing the connection: %w", err))
	}
}

func (c *Conn) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
