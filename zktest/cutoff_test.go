package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// cutOffStory is what a client of a follower sees while that follower is cut off from its leader,
// for longer than the client's session can last, and what the leader answers meanwhile.
func cutOffStory(t *testing.T, leader, follower string, cut, heal func()) []string {
	t.Helper()
	f, l := scriptAt(follower), scriptAt(leader)
	l.do(t, "l connect t=10000")
	f.do(t, "f connect t=1000")
	f.do(t, "f create /story m=e")
	cut()
	beat := time.NewTicker(250 * time.Millisecond)
	defer beat.Stop()
	for range 16 { // four timeouts long
		<-beat.C
		f.do(t, "f ping")
		f.do(t, "f exists /story")
		l.do(t, "l ping")
	}
	l.do(t, "l exists /story")
	f.send(t, "f create /late")
	l.do(t, "l exists /late")
	heal()
	f.do(t, "f eof")
	l.do(t, "l exists /late")
	f.dial = l.dial
	f.do(t, "f reattach")
	l.do(t, "l close")
	var story []string
	for _, line := range append(f.trace, l.trace...) {
		story = append(story, zxids.ReplaceAllString(line, "z"))
	}
	return story
}

func TestCutOffFollowerMisleadsItsClientsAsARealOne(t *testing.T) {
	const tick = 500 * time.Millisecond
	// it must not notice by itself
	real := ensemble.Start(t, 3, ensemble.WithTick(tick), ensemble.WithSyncLimit(120))
	real.NeedControl(t)
	follower := real.Followers(t)[0]
	want := cutOffStory(t, real.Leader(t).Addr(), follower.Addr(), func() {
		real.Isolate(follower)
	}, real.Heal)
	assert.Contains(t, want, "l exists: xid z code=-101  rest=",
		"the session should have expired meanwhile")

	ours := zktest.Run(t, zktest.WithTick(tick), sameVersion(t, real))
	m, err := ours.Follower()
	require.NoError(t, err)
	assert.Equal(t, want, cutOffStory(t, ours.Addr(), m.Addr(), m.CutOff, m.Heal))
}

// A client has left a follower that is cut off, with a create on its way, has been connected
// elsewhere, and reconnects to that same follower. A real leader gets the create first, while the
// session still belongs to the other member, and refuses it. Here the handshake may come first, and
// then the create is discarded as of an old connection. Either way a client that reconnects and
// reads after a sync sees all that its earlier connections will ever have done.
func TestARequestThatWaitedAtACutOffFollowerIsNotCarriedOutAfterItsClientHasReconnected(
	t *testing.T,
) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		m, err := s.Follower()
		require.NoError(t, err)
		leader := c.dial
		follower := scriptOn(t, m.Dial).dial
		c.dial = follower
		c.do(t, "a connect t=10000")
		m.CutOff()
		// A member that is cut off would keep the create waiting, too, but ahead of the third
		// connection's handshake. The fault holds it until that handshake waits.
		late := s.Inject(fault.Hold().Op(fault.OpCreate))
		c.send(t, "a create /late m=e")
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
	for name, failure := range map[string]fault.Fault{"held": fault.Hold().Op(
		fault.OpCreate).Once(),
		"frozen": fault.FreezeRequests().Op(fault.OpCreate).Once()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
				c.do(t, "a connect t=10000")
				late := s.Inject(failure)
				c.send(t, "a create /late m=e")
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
