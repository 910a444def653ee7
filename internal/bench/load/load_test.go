package load_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/bench/load"
	"github.com/zklock/locker/internal/bench/peers"
	"github.com/zklock/locker/zktest"
)

func serve(t *testing.T, peer, command string) []string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, load.Serve(strings.NewReader(command), &out, peers.All[peer]))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestTheCyclesOfEveryWorkerAreReported(t *testing.T) {
	server := zktest.Run(t)
	for _, peer := range []string{"raw", "zklock", "local", "zk.Lock"} {
		t.Run(peer, func(t *testing.T) {
			got := serve(t, peer, "run "+server.Addr()+" 0 10000 /"+peer+" 2 3 2 0 1")
			ops, done := got[:len(got)-1], got[len(got)-1]
			require.Regexp(t, `^done \d+ \d+$`, done)
			require.GreaterOrEqual(t, len(ops), 4, "as many cycles as locks, twice")
			for _, o := range ops {
				require.Regexp(t, `^op [01] \d+ \d+ \d+$`, o)
			}
			require.Empty(t, server.Sessions())
		})
	}
}

func TestBadCommandsAreAnswered(t *testing.T) {
	for command, want := range map[string]string{
		"dance":                          `error command "dance"`,
		"run s 0 10 /r 1 1 x 0 1":        "expected integer",
		"run s:1:1 0 10000 /r 1 1 1 0 1": "client 0",
	} {
		got := serve(t, "zklock", command)
		require.Len(t, got, 1)
		require.Contains(t, got[0], "error ")
		require.Contains(t, got[0], want)
	}
}
