package zktest_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// A client has left a follower that is cut off, with a create on its way, has been connected elsewhere, and reconnects
// to that same follower. The leader gets the create first, when the session still belongs to the other member, and
// refuses it: so a client that reconnects and reads after a sync sees all that its earlier connections will ever have
// done.
func TestARequestThatWaitedAtACutOffFollowerIsNotCarriedOutAfterItsClientHasReconnected(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		m, err := s.Follower()
		require.NoError(t, err)
		leader := c.dial
		follower := scriptOn(t, m.Dial).dial
		c.dial = follower
		c.do(t, "a connect t=10000")
		m.CutOff()
		late := s.Inject(fault.Hold().Op(fault.OpCreate)) // until after the third connection's handshake
		c.do(t, "a quiet create /late m=e")
		synctest.Wait()
		c.do(t, "a drop")
		c.dial = leader
		require.NotContains(t, c.do(t, "a reattach"), "expired")
		c.ok(t, "a exists /")
		c.do(t, "a drop")
		synctest.Wait()

		c.dial = follower
		back := make(chan string, 1)
		go func() { back <- c.do(t, "a reattach") }()
		synctest.Wait()
		late.Remove()
		synctest.Wait()
		m.Heal()
		require.NotContains(t, <-back, "expired")
		synctest.Wait()
		require.False(t, exists(s, "/late"))
	})
}

func TestARequestThatAFaultHeldBackIsNotCarriedOutAfterItsClientHasReconnected(t *testing.T) {
	for name, failure := range map[string]fault.Fault{"held": fault.Hold().Op(fault.OpCreate).Once(),
		"frozen": fault.FreezeRequests().Op(fault.OpCreate).Once()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
				c.do(t, "a connect t=10000")
				late := s.Inject(failure)
				c.do(t, "a quiet create /late m=e")
				synctest.Wait()
				c.do(t, "a drop")
				require.NotContains(t, c.do(t, "a reattach"), "expired")
				late.Remove()
				synctest.Wait()
				require.False(t, exists(s, "/late"))
			})
		})
	}
}
