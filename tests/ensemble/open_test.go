package ensemble_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

func TestALeaderWhoseMessagesAreLostInOneDirectionIsReplacedAndRejoins(t *testing.T) {
	e := ensemble.Shared(t, 3, ensemble.WithSyncLimit(2))
	e.NeedControl(t)
	for name, cut := range map[string]func(*ensemble.Node){"mute": e.Mute, "deaf": e.Deafen} {
		t.Run(name, func(t *testing.T) {
			leader := e.Leader(t)
			cut(leader)
			leader.WaitNotServing(t)
			require.NotSame(t, leader, e.Leader(t))
			e.Heal()
			e.WaitServing(t)
			require.Len(t, e.Followers(t), 2)
		})
	}
}

func TestAnEnsembleWithSlowLinksStillServes(t *testing.T) {
	e := ensemble.Shared(t, 3, ensemble.WithSyncLimit(2))
	e.NeedControl(t)
	const delay = 100 * time.Millisecond
	leader := e.Leader(t)
	c := connect(t, leader.Addr(), 10*time.Second)
	e.Slow(leader, delay)
	began := time.Now()
	_, err := c.Create(e.Path(t), nil, 0, openACL)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 2*delay,
		"a write takes a proposal and an acknowledgement")
	e.Heal()
}

func TestOpenedEnsembleIsRevivedAndEndsWhenItIsClosed(t *testing.T) {
	e, err := ensemble.Open(1)
	require.NoError(t, err)
	n := ensemble.At(e.Connect())
	require.Equal(t, "standalone", n.Mode())
	require.Error(t, n.Kill(), "a server that was not started here")
	p, err := ensemble.OpenProxy(e.Connect())
	require.NoError(t, err)
	connect(t, p.Addr(), 10*time.Second)
	require.NoError(t, p.Close())
	require.NoError(t, e.Nodes[0].Kill())
	require.NoError(t, e.Revive(bound))
	require.Equal(t, "standalone", n.Mode())
	require.NoError(t, e.Close())
	require.Empty(t, n.Mode())
}
