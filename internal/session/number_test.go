package session_test

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
)

// moving is a connection that ends behind the request with the data "last"; the next one is to
// another server.
type moving struct {
	net.Conn
	server *atomic.Int32
}

func (c moving) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if bytes.Contains(b, []byte("last")) {
		c.server.Store(1)
		err = errors.Join(err, c.Close())
	}
	return n, err
}

// Scenario 82. A server takes a committed write for the request that waits there with the same
// session and number. When a session has come from another server, a write that it sent there may
// still be committed, or refused.
func TestAWriteOfAnEarlierConnectionAnswersNoRequestOfALaterOne(t *testing.T) {
	e := ensemble.Shared(t, 3)
	e.NeedControl(t)
	path, leader, followers := e.Path(t), e.Leader(t), e.Followers(t)
	require.NoError(t,
		openAt(t, leader.Addr()).CreateAll(within(t, soon), path, nil, session.Persistent,
			session.WorldACL()))

	// a commit needs two round trips of the leader, a re-attachment one
	e.Slow(leader, 100*time.Millisecond)
	for range 5 {
		if tryToConfuse(t, e, followers, path) {
			return
		}
	}
	require.Fail(t, "each time the early writes were committed before the session had moved")
}

// tryToConfuse sends writes to one follower and, once the session has moved to another one,
// requests with the numbers that those writes would have if each connection counted from the
// beginning. It says whether they came in time: before the first write was carried out.
func tryToConfuse(
	t *testing.T, e *ensemble.Ensemble, followers []*ensemble.Node, path string,
) bool {
	var server atomic.Int32
	s := openAt(t, e.Connect(), func(c *session.Config) {
		c.Dial = func(network, _ string, timeout time.Duration) (net.Conn, error) {
			c, err := net.DialTimeout(network, followers[server.Load()].Addr(), timeout)
			return moving{c, &server}, err
		}
	})
	before, err := s.Exists(within(t, soon), path)
	require.NoError(t, err)
	early := s.Batch()
	for range 99 {
		early.Multi(session.OpSet{Path: path, Version: -1})
	}
	early.Multi(session.OpSet{Path: path, Data: []byte("last"), Version: -1})
	require.ErrorIs(t, early.Do(within(t, soon)), session.ErrUnknownOutcome)

	late := s.Batch()
	after := late.Exists(path)
	for range 9 { // so that the deletes would have numbers of early writes
		late.Exists(path)
	}
	var refused []*session.Result[session.None]
	for range 40 {
		refused = append(refused, late.Delete(path+"/none", -1))
	}
	require.Error(t, late.Do(within(t, soon)))
	for i, r := range refused {
		require.ErrorIs(t, r.Err, zk.ErrNoNode, "delete %d", i)
	}
	return after.Value.Version == before.Version
}
