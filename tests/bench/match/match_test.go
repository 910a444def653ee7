package match_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/bench/load"
	"github.com/zklock/locker/tests/bench/match"
	"github.com/zklock/locker/tests/bench/peers"
	"github.com/zklock/locker/tests/bench/servers"
)

// The test's own program is the Go contestants.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-contestant" {
		if err := load.Serve(os.Stdin, os.Stdout, peers.All[os.Args[2]]); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// The smaller settings, as briefly as possible: every installed contestant has figures in those
// that it takes part in. Speeds are not checked.
func TestEveryInstalledContestantIsMeasured(t *testing.T) {
	r, err := match.Run(t.Context(), match.Config{
		Only: []string{"alone", "two", "sixteen-1ms", "goroutines", "hundred"}, Rounds: 1,
		Run:   time.Millisecond,
		First: 2 * time.Millisecond, Servers: servers.Config{Nodes: 1}, Log: t.Logf,
	})
	require.NoError(t, err)
	require.Empty(t, r.Failures)
	require.Equal(t, len(match.Contestants), len(r.Contestants)+len(r.Left))
	for _, why := range r.Left {
		require.Contains(t, why, "apt-get install")
	}
	for _, s := range r.Settings {
		for _, c := range r.Contestants {
			isAlone := s.Clients*s.Workers == 1
			if c.Name == match.Floor && !isAlone || c.Name == "local" && s.Name != "goroutines" {
				require.Empty(t, r.Cells[match.Key(s, c)])
				continue
			}
			require.Len(t, r.Cells[match.Key(s, c)], 1, "%s %s", s.Name, c.Name)
			f := r.Cells[match.Key(s, c)][0]
			require.Positive(t, f.Rate)
			require.Positive(t, f.Acquire)
			if runtime.GOOS == "linux" && c.Name != "curator" && c.Name != "kazoo" {
				require.Positive(t, f.Allocations) // CPU time may be less than the kernel counts
			}
		}
	}
}

func TestUnknownNamesAreRefused(t *testing.T) {
	_, err := match.Run(t.Context(), match.Config{Only: []string{"zklock", "tango"}})
	require.ErrorContains(t, err, `"tango"`)
}
