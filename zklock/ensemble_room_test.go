package zklock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// roomEnsemble starts servers of the test's own, since they may not survive it.
func roomEnsemble(t *testing.T) *ensemble.Ensemble {
	t.Helper()
	if siteInProcess() {
		t.Skipf("needs servers with processes of their own, and %s has none", siteBackend)
	}
	e := ensemble.Start(t, 3, ensemble.WithTick(siteTick), ensemble.WithDirectQuorum())
	e.NeedControl(t)
	return e
}

func roomDial(t *testing.T, connect string, opts ...zklock.Option) *zklock.Client {
	t.Helper()
	opts = append([]zklock.Option{zklock.WithSessionTimeout(20 * siteTick), zklock.WithServerTick(siteTick)}, opts...)
	c, err := zklock.Dial(siteContext(t), connect, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { siteClose(t, c) })
	return c
}

// roomFill makes n ephemerals of 77 bytes in the client's first session, or as many as there is room for.
func roomFill(t *testing.T, c *zklock.Client, n int) (made int) {
	t.Helper()
	ctx := siteLongContext(t)
	s, err := c.Session(ctx)
	require.NoError(t, err)
	require.NoError(t, s.CreateAll(ctx, "/room", nil, session.Persistent, siteWorld))
	name := "/room/" + strings.Repeat("n", 61)
	for batch := 200; made < n; {
		ops := make([]any, min(batch, n-made))
		for i := range ops {
			ops[i] = &zk.CreateRequest{Path: name, Acl: siteWorld, Flags: int32(session.EphemeralSequential)}
		}
		switch _, err := s.Multi(ctx, ops...); {
		case err == nil:
			made += len(ops)
		case errors.Is(err, session.ErrNoRoom) && batch > 1:
			batch = 1
		case errors.Is(err, session.ErrNoRoom):
			return made
		default:
			require.NoError(t, err)
		}
	}
	return made
}

// roomServes checks that a lock can be taken and released through one server.
func roomServes(t *testing.T, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), siteBound/4)
	defer cancel()
	c, err := zklock.Dial(ctx, addr, zklock.WithSessionTimeout(20*siteTick), zklock.WithServerTick(siteTick))
	if err != nil {
		return err
	}
	defer func() { assert.NoError(t, c.Close()) }()
	return c.Mutex("/later").Do(ctx, func(context.Context) error { return nil })
}

// A client has as many locks and znodes of its own as its sessions have room for, and ends: the ensemble lives, and its
// servers can start again, with that in their logs.
func TestAnEnsembleSurvivesTheEndOfAClientWhoseSessionsAreFull(t *testing.T) {
	e := roomEnsemble(t)
	c := roomDial(t, e.Connect())
	made := roomFill(t, c, 50_000)
	require.Less(t, made, 50_000)
	holds := poolLockMany(t, c, 500)
	require.Len(t, c.Status().Sessions, 2, "the first was full")
	t.Logf("%d znodes of 77 bytes in a full session, and %d locks in the next", made, len(holds))
	require.NoError(t, c.Close())
	for _, n := range e.Nodes {
		require.NoError(t, roomServes(t, n.Addr()))
	}
	for _, n := range e.Nodes {
		n.Restart(t)
		e.WaitServing(t)
	}
	for _, n := range e.Nodes {
		require.NoError(t, roomServes(t, n.Addr()))
	}
	other := roomDial(t, e.Connect())
	require.Empty(t, siteQueue(t, other, "/room"), "all gone with the session")
}

// What the bound is for: without it the same end takes servers down for good. It says something about the servers, and
// nothing about this library, but that the test above looks at the right thing.
func TestAnEnsembleDiesOfTheEndOfASessionThatIsLargerThanItsServersCanRead(t *testing.T) {
	if !siteLong() {
		t.Skipf("takes minutes: set %s", siteLongEnv)
	}
	e := roomEnsemble(t)
	c := roomDial(t, e.Connect(), zklock.WithEphemeralBytes(64<<20))
	require.Equal(t, 50_000, roomFill(t, c, 50_000))
	require.NoError(t, c.Close())
	ensemble.Until(t, siteBound, "a server to stop serving", func() error {
		if slices.ContainsFunc(e.Nodes, func(n *ensemble.Node) bool { return n.Mode() == "" }) {
			return nil
		}
		return errors.New("all serve")
	})
	for _, n := range e.Nodes {
		require.NoError(t, errors.Join(n.Kill(), n.Launch()))
	}
	var dead []int
	for _, n := range e.Nodes { // each has time enough for an election
		if err := roomServes(t, n.Addr()); err != nil {
			dead = append(dead, n.ID)
		}
	}
	t.Logf("after all were started again, these serve nobody: %v", dead)
	require.NotEmpty(t, dead)
}
