package locktest

import (
	"encoding/binary"
	"net"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Client is a client whose connections the test directs to servers of its choice.
type Client struct {
	*zklock.Client
	s *Sim

	mu     sync.Mutex // guards the fields below
	member *zktest.Member
	names  []string // see Created
}

// Client dials the server. Its session timeout is the default of 10 s unless opts say otherwise.
func (s *Sim) Client(opts ...zklock.Option) *Client {
	s.Helper()
	c := &Client{s: s, member: s.Server.Leader()}
	var err error
	c.Client, err = zklock.Dial(s.Context(), s.Server.Addr(),
		append(append([]zklock.Option{zklock.WithoutLog()}, opts...), zklock.WithDialer(c.dial))...)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, c.Close()) })
	return c
}

func (c *Client) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := c.Member().Dial(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	return &tap{conn, c}, nil
}

// LeadTo makes m the server of the client's next connection.
func (c *Client) LeadTo(m *zktest.Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.member = m
}

// Member returns the server of the client's next connection.
func (c *Client) Member() *zktest.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.member
}

// ClientAt is Client for a client of member m.
func (s *Sim) ClientAt(m *zktest.Member, opts ...zklock.Option) *Client {
	s.Helper()
	c := s.Client(opts...)
	c.LeadTo(m)
	leader, _ := s.Server.Session(c.SessionID())
	require.Equal(s, s.Server.Leader(), leader.Member)
	s.Server.Leader().DropConnections()
	s.Until(5*time.Second, "the client has moved", func() bool {
		info, _ := s.Server.Session(c.SessionID())
		return info.Connected && info.Member == m
	})
	return c
}

// Current returns the current session.
func (c *Client) Current() *session.Session {
	c.s.Helper()
	sess, err := unsealed.Session(c.s.Context(), c.Client)
	require.NoError(c.s, err)
	return sess
}

// SessionID returns the current session's id.
func (c *Client) SessionID() int64 { return c.Current().ID() }

// mostNames bounds the names that a tap keeps: memory must not grow with the client's work.
const mostNames = 100

// Created returns the names, still without a number, of the first contenders of mutexes that the
// client has requested, each by a create of its own: those in a transaction of several are missing.
func (c *Client) Created() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.names...)
}

// tap parses what a client writes.
type tap struct {
	net.Conn
	c *Client
}

func (t *tap) Write(b []byte) (int, error) {
	t.c.mu.Lock()
	for rest := b; len(rest) >= 12; { // frames: length, xid, opcode, and for a create the path
		n := 4 + int(binary.BigEndian.Uint32(rest))
		if n < 12 || n > len(rest) {
			break
		}
		frame := rest[:n]
		rest = rest[n:]
		if fault.Op(binary.BigEndian.Uint32(frame[8:])) != fault.OpCreate || n < 16 {
			continue
		}
		end := min(n, 16+int(binary.BigEndian.Uint32(frame[12:]))) // a null path has the length -1
		if name := path.Base(string(frame[16:end])); strings.HasSuffix(name, "-lock-") &&
			len(t.c.names) < mostNames {
			t.c.names = append(t.c.names, name)
		}
	}
	t.c.mu.Unlock()
	return t.Conn.Write(b)
}
