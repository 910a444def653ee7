package driver

import (
	"errors"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Driver keeps the session connected: the library github.com/go-zookeeper/zk dials through our
// dialer, shakes hands, pings, and dials again when a connection has failed. Only this file uses
// its zk.Conn, which reads only the handshake and the headers of the replies to its own pings and
// close: a hostile server can't upset it.
type Driver struct {
	timeout time.Duration
	next    func() (net.Conn, *link.Conn, error)
	over    func() bool

	conn   *zk.Conn
	events <-chan zk.Event // closed when the driver's loop has ended
}

// New returns a driver that asks for a session timeout. next dials, and returns the socket with its
// conn; over says that the session is over.
func New(
	timeout time.Duration, next func() (net.Conn, *link.Conn, error), over func() bool,
) *Driver {
	return &Driver{timeout: timeout, next: next, over: over}
}

const driverBuffer = 1 << 10 // for handshakes and headers

// Start starts the driver's loop; Stop stops it. The driver refuses an empty list of servers, and
// nothing else.
func (d *Driver) Start() {
	d.conn, d.events, _ = zk.Connect([]string{"ensemble"}, d.timeout,
		zk.WithDialer(d.dial), zk.WithHostProvider(provider{d.over}), zk.WithLogger(quiet{}),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(driverBuffer), zk.WithMaxConnBufferSize(driverBuffer))
}

// Stop closes the driver and returns a channel that is closed when its loop has ended. The driver
// tells the server, if there is a connection, and waits a second for the answer; it ends when its
// connection does.
func (d *Driver) Stop() (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() { // ends with the driver's loop
		defer close(done)
		d.conn.Close()
		for range d.events { //nolint:revive // what they tell, the conns have told
		}
	}()
	return done
}

func (d *Driver) dial(string, string, time.Duration) (net.Conn, error) {
	netConn, c, err := d.next()
	if err != nil {
		return nil, err
	}
	return &driverConn{Conn: netConn, c: c}, nil
}

type driverConn struct {
	net.Conn
	c      *link.Conn
	began  bool
	unread []byte // what the driver has not fetched yet
}

// Write takes one frame of the driver's per call: first its connect request, which is sent at once,
// then pings and the close, which are urgent.
func (d *driverConn) Write(b []byte) (int, error) {
	frame := append([]byte(nil), b...)
	if !d.began {
		d.began = true
		return len(b), d.c.ShakeHands(frame)
	}
	if !d.c.Enqueue(pipeline.OfDriver(frame)) {
		return 0, d.c.Failure()
	}
	return len(b), nil
}

// Read returns the frames for the driver. The conn handles all others that arrive meanwhile.
func (d *driverConn) Read(b []byte) (int, error) {
	for len(d.unread) == 0 {
		frame, err := d.c.Receive()
		if err != nil {
			return 0, err
		}
		if frame != nil {
			d.unread = append(wire.AppendInt(d.unread[:0], int32(len(frame))), frame...)
		}
	}
	n := copy(b, d.unread)
	d.unread = d.unread[n:]
	return n, nil
}

// SetReadDeadline does nothing. The dialer's shorter deadline bounds the handshake. Later the
// driver would set one for its own frames only, which would pass while ours arrive; the heartbeat
// notices a silent server.
func (d *driverConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing: the conn bounds each write.
func (d *driverConn) SetWriteDeadline(time.Time) error { return nil }

func (d *driverConn) Close() error {
	d.c.Fail(errors.New("closed by the driver"))
	return nil
}

// provider is the driver's list of servers: one name, since our dialer chooses. The driver checks
// for Close only when its list restarts, so Next reports a restart once the session is over.
type provider struct{ over func() bool }

func (p provider) Init([]string) error { return nil }
func (p provider) Len() int            { return 1 }
func (p provider) Connected()          {}
func (p provider) Next() (server string, retryStart bool) {
	return "ensemble:2181", p.over()
}

// quiet is the driver's logger: the session logs what matters itself.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
