package zklock_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// A session that is closed by force ends its holds at once, before any lease is over: the ensemble is the one that says so.
// How soon, and with which cause at which age of a hold, is in TestScenario17_AForcedExpiryEndsTheHoldAtOnceWithItsCause.
func TestSessionClosedByForceEndsItsHolds(t *testing.T) {
	s := locktest.SiteBeside(t, 3)
	dir := s.Path(t)
	for i := range 5 {
		var spy spy
		c := s.ClientAt(t, s.Connect(), zklock.WithDialer(spy.dial))
		ses, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		id, password := spy.secret()
		require.Equal(t, ses.ID(), id)

		h := locktest.Lock(t, c.Mutex(fmt.Sprint(dir, "/", i)))
		// From here on the ensemble has no such session, and any client can get the lock.
		require.NoError(t, closeByForce(s.Addrs[i%len(s.Addrs)], id, password))
		select {
		case <-h.Context().Done():
		case <-locktest.Soon(t).Done():
			t.Fatal("a hold of a session that was closed goes on")
		}
		cause := h.Err()
		if !errors.Is(cause, zklock.ErrSessionExpired) {
			require.ErrorIs(t, cause, zklock.ErrNodeDeleted) // of a hold that is old enough to watch its znode
		}
		require.ErrorIs(t, cause, zklock.ErrLost)
		require.ErrorIs(t, h.Unlock(), cause)

		next := locktest.Lock(t, c.Mutex(fmt.Sprint(dir, "/", i))) // in another session
		require.Greater(t, next.Token(), h.Token())
		locktest.Unlock(t, next)
	}
}

// spy reads a session's id and password from the connection.
type spy struct {
	mu    sync.Mutex // guards what follows
	first []byte     // what the server sent first
}

func (y *spy) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	return spied{c, y}, nil
}

// secret: length 4, protocol version 4, timeout 4, session id 8, password with a length of 4 in front.
func (y *spy) secret() (id int64, password []byte) {
	y.mu.Lock()
	defer y.mu.Unlock()
	b := y.first
	return int64(binary.BigEndian.Uint64(b[12:])), b[24 : 24+binary.BigEndian.Uint32(b[20:])]
}

type spied struct {
	net.Conn
	spy *spy
}

func (c spied) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.spy.mu.Lock()
	defer c.spy.mu.Unlock()
	if len(c.spy.first) < 64 {
		c.spy.first = append(c.spy.first, b[:n]...)
	}
	return n, err
}

// closeByForce takes a session over with its password and closes it, as anybody can who has read the password from a
// connection. Nil: the ensemble has closed it. A server may end the connection before it has sent the reply to the close, or
// give the session back to its owner before it has read the close; so this is repeated until there is no such session.
func closeByForce(addr string, id int64, password []byte) error {
	for end := time.Now().Add(locktest.Bound); ; {
		over, err := takeAndClose(addr, id, password)
		if over {
			return nil
		}
		if err != nil && time.Now().After(end) {
			return err
		}
	}
}

// takeAndClose tries that once. over: the close was answered, or the server knows no such session.
func takeAndClose(addr string, id int64, password []byte) (over bool, err error) {
	c, err := net.DialTimeout("tcp", addr, locktest.Bound)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetDeadline(time.Now().Add(locktest.Bound)); err != nil {
		return false, err
	}
	hello := binary.BigEndian.AppendUint32(nil, 0)               // protocol version
	hello = binary.BigEndian.AppendUint64(hello, 0)              // last zxid seen
	hello = binary.BigEndian.AppendUint32(hello, 10_000)         // timeout, ms
	hello = binary.BigEndian.AppendUint64(hello, uint64(id))     //
	hello = appendBuffer(hello, password)                        //
	bye := binary.BigEndian.AppendUint32(nil, 1)                 // xid
	bye = binary.BigEndian.AppendUint32(bye, uint32(0xfffffff5)) // closeSession, −11
	// Both at once, because the session's owner reconnects, and must not come in between.
	if _, err := c.Write(append(appendBuffer(nil, hello), appendBuffer(nil, bye)...)); err != nil {
		return false, err
	}
	greeting, err := readFrame(c)
	if err != nil {
		return false, fmt.Errorf("reply to handshake: %w", err)
	}
	if binary.BigEndian.Uint32(greeting[4:]) == 0 { // a timeout of 0: no such session
		return true, nil
	}
	if _, err := readFrame(c); err != nil {
		return false, fmt.Errorf("reply to close: %w", err)
	}
	return true, nil
}

// readFrame reads a frame: a length, and the bytes after it.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

// appendBuffer appends b with its length in front.
func appendBuffer(to, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(b))), b...)
}
