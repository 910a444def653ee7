package ensemble_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

func TestMain(m *testing.M) { os.Exit(ensemble.Run(m)) }

// connect opens a session and returns when it stands.
func connect(t *testing.T, servers string, timeout time.Duration) *zk.Conn {
	t.Helper()
	up := make(chan struct{}, 64)
	c, _, err := zk.Connect(strings.Split(servers, ","), timeout, zk.WithLogInfo(false),
		zk.WithLogger(quiet{}), zk.WithEventCallback(func(ev zk.Event) {
			if ev.State == zk.StateHasSession {
				select {
				case up <- struct{}{}:
				default:
				}
			}
		}))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	select {
	case <-up:
	case <-time.After(20 * time.Second):
		t.Fatalf("no session with %s within 20s: the driver is in state %v", servers, c.State())
	}
	return c
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

var openACL = zk.WorldACL(zk.PermAll)

func TestOneNodeServesDiesAndComesBackWithItsData(t *testing.T) {
	e := ensemble.Shared(t, 1)
	e.NeedControl(t)
	n, path := e.Nodes[0], e.Path(t)
	require.Same(t, n, e.Leader(t))
	require.Equal(t, "standalone", n.Mode())
	require.Equal(t, n.Addr(), e.Connect())

	c := connect(t, e.Connect(), 10*time.Second)
	_, err := c.Create(path, []byte("kept"), 0, openACL)
	require.NoError(t, err)
	_, _, _, err = c.ExistsW(path)
	require.NoError(t, err)
	count, err := n.WatchCount()
	require.NoError(t, err)
	require.EqualValues(t, 1, count)
	_, err = n.Mntr("zk_no_such_number")
	require.ErrorContains(t, err, "zk_no_such_number")

	require.NoError(t, n.Kill())
	require.Empty(t, n.Mode())
	_, err = n.FourLetter("ruok")
	require.Error(t, err)
	require.Error(t, n.Pause(), "a server that is not running cannot be paused")
	n.Restart(t)
	// Not by the old connection: a server that a client reaches while it starts may drop the
	// request and keep the socket open ("this.zkDb" is null, in 3.8.0), and the driver waits more
	// than a minute for the answer.
	data, _, err := connect(t, e.Connect(), 10*time.Second).Get(path)
	require.NoError(t, err)
	require.Equal(t, "kept", string(data))
}

func TestPausedServerAnswersNothingUntilItIsResumed(t *testing.T) {
	e := ensemble.Shared(t, 1)
	e.NeedControl(t)
	n := e.Nodes[0]
	require.NoError(t, n.Pause())
	_, err := n.FourLetter("ruok")
	require.Error(t, err)
	require.NoError(t, n.Resume())
	n.WaitServing(t)
}

func TestSharedRestoresWhatAnEarlierTestBroke(t *testing.T) {
	e := ensemble.Shared(t, 1)
	e.NeedControl(t)
	require.NoError(t, e.Nodes[0].Kill())
	again := ensemble.Shared(t, 1)
	require.Same(t, e, again)
	require.Equal(t, "standalone", again.Nodes[0].Mode())
	require.NoError(t, e.Nodes[0].Pause())
	require.Equal(t, "standalone", ensemble.Shared(t, 1).Nodes[0].Mode())
}

func TestThreeNodesElectALeaderAndLoseAndRegainAnyMember(t *testing.T) {
	e := ensemble.Shared(t, 3, ensemble.WithSyncLimit(2))
	e.NeedControl(t)
	require.Len(t, e.Followers(t), 2)
	for _, n := range e.Nodes { // the leader among them
		was := n.Mode()
		e.Isolate(n)
		n.WaitNotServing(t)
		require.Len(t, e.Followers(t), 1,
			"the other two have a leader without server %d, which was %s", n.ID, was)
		e.Heal()
		e.WaitServing(t)
		require.Len(t, e.Followers(t), 2)
	}
}

func TestKilledLeaderIsReplaced(t *testing.T) {
	e := ensemble.Shared(t, 3, ensemble.WithSyncLimit(2))
	e.NeedControl(t)
	old := e.Leader(t)
	require.NoError(t, old.Kill())
	require.NotSame(t, old, e.Leader(t))
	old.Restart(t)
	require.Equal(t, "follower", old.Mode())
}

func TestNamedEnsembleIsUsedAndNotSignalled(t *testing.T) {
	own := ensemble.Shared(t, 1)
	own.NeedControl(t)
	t.Setenv("ZKLOCK_TEST_SERVERS", own.Connect())
	e := ensemble.Start(t, 1)
	require.Equal(t, own.Connect(), e.Connect())
	require.Equal(t, "standalone", e.Leader(t).Mode())
	require.ErrorContains(t, e.Nodes[0].Kill(), "ZKLOCK_TEST_SERVERS")
	require.ErrorContains(t, e.Nodes[0].Pause(), "ZKLOCK_TEST_SERVERS")
	for name, needs := range map[string]func(*testing.T){
		"control":    func(t *testing.T) { e.NeedControl(t) },
		"more nodes": func(t *testing.T) { ensemble.Start(t, 3) },
		"configuration": func(t *testing.T) {
			ensemble.Start(t, 1, ensemble.WithContainerCheck(time.Second))
		},
	} {
		t.Run("a test that needs "+name+" skips", func(t *testing.T) {
			needs(t)
			t.Fatal("did not skip")
		})
	}
	require.Equal(t, "standalone", own.Nodes[0].Mode(), "nothing happened to the servers")
}
