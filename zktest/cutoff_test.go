package zktest_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zktest"
)

// cutOffStory is what a client of a follower sees while that follower is cut off from its leader, for longer than the
// client's session can last, and what the leader answers meanwhile.
func cutOffStory(t *testing.T, leader, follower string, cut, heal func()) []string {
	t.Helper()
	at := func(addr string) *script {
		return &script{dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }, sessions: map[string]*raw{}}
	}
	f, l := at(follower), at(leader)
	require.NoError(t, l.step("l connect t=10000"))
	require.NoError(t, f.step("f connect t=1000"))
	require.NoError(t, f.step("f create /story m=e"))
	cut()
	beat := time.NewTicker(250 * time.Millisecond)
	defer beat.Stop()
	for range 16 { // four timeouts long
		<-beat.C
		require.NoError(t, f.step("f ping"))
		require.NoError(t, f.step("f exists /story"))
		require.NoError(t, l.step("l ping"))
	}
	require.NoError(t, l.step("l exists /story"))
	require.NoError(t, f.step("f quiet create /late"))
	require.NoError(t, l.step("l exists /late"))
	heal()
	require.NoError(t, f.step("f eof"))
	require.NoError(t, l.step("l exists /late"))
	f.dial = l.dial
	require.NoError(t, f.step("f reattach"))
	require.NoError(t, l.step("l close"))
	var story []string
	for _, line := range append(f.trace, l.trace...) {
		story = append(story, zxids.ReplaceAllString(line, "z"))
	}
	return story
}

func TestCutOffFollowerMisleadsItsClientsAsARealOne(t *testing.T) {
	const tick = 500 * time.Millisecond
	real := ensemble.Start(t, 3, ensemble.WithTick(tick), ensemble.WithSyncLimit(120)) // it must not notice by itself
	real.NeedControl(t)
	follower := real.Followers(t)[0]
	want := cutOffStory(t, real.Leader(t).Addr(), follower.Addr(), func() { real.Isolate(follower) }, real.Heal)
	assert.Contains(t, want, "l exists: xid z code=-101  rest=", "the session should have expired meanwhile")

	ours := zktest.Run(t, zktest.WithTick(tick), sameVersion(t, real))
	m, err := ours.Follower()
	require.NoError(t, err)
	assert.Equal(t, want, cutOffStory(t, ours.Addr(), m.Addr(), m.CutOff, m.Heal))
}
