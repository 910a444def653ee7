package session_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
)

// Scenario 82. A server takes a committed write for the request of its own client that waits with the same session and number. Once a
// session has come from another server, a write that it sent there may still be committed.
func TestAWriteOfAnEarlierConnectionAnswersNoRequestOfALaterOne(t *testing.T) {
	e := ensemble.Shared(t, 3)
	e.NeedControl(t)
	path, leader, followers := e.Path(t), e.Leader(t), e.Followers(t)
	require.NoError(t, openAt(t, leader.Addr()).CreateAll(within(t, soon), path, nil, session.Persistent, session.WorldACL()))

	var mu sync.Mutex
	server, conns := followers[0].Addr(), []net.Conn(nil)
	s := openAt(t, e.Connect(), func(c *session.Config) {
		c.Dial = func(network, _ string, timeout time.Duration) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			c, err := net.DialTimeout(network, server, timeout)
			if err == nil {
				conns = append(conns, c)
			}
			return c, err
		}
	})
	e.Slow(leader, 100*time.Millisecond) // the commit needs two round trips of the leader, a re-attachment one
	early := s.Batch()
	for range 100 {
		early.Multi(session.OpSet{Path: path, Version: -1})
	}
	sent := make(chan error)
	go func() { sent <- early.Do(within(t, soon)) }()
	ensemble.Until(t, soon, "the writes at the follower", func() error {
		if n, err := followers[0].Mntr("zk_outstanding_requests"); err != nil || n < 100 {
			return fmt.Errorf("%d, %w", n, err)
		}
		return nil
	})

	mu.Lock()
	server = followers[1].Addr()
	require.NoError(t, conns[len(conns)-1].Close())
	mu.Unlock()
	require.ErrorIs(t, <-sent, session.ErrUnknownOutcome)
	late := s.Batch()
	for range 50 { // numbers of early writes
		late.Exists(path)
	}
	refused := late.Delete(path+"/none", -1)
	require.ErrorIs(t, late.Do(within(t, soon)), zk.ErrNoNode)
	require.ErrorIs(t, refused.Err, zk.ErrNoNode)
}
