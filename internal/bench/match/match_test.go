package match_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/bench/load"
	"github.com/zklock/locker/internal/bench/match"
	"github.com/zklock/locker/internal/bench/peers"
	"github.com/zklock/locker/internal/bench/report"
	"github.com/zklock/locker/internal/bench/servers"
)

// The test's own program is the Go contestants.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-contestant" {
		if err := load.Serve(os.Stdin, os.Stdout, peers.All[os.Args[2]]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Everything is measured, as briefly as possible: every installed contestant appears in every table, and the figures
// agree with each other. It does not check speeds.
func TestEveryInstalledContestantIsInEveryTable(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	nodes := 1
	if os.Getenv("ZKLOCK_LONG") != "" {
		nodes = 3
	}
	var r *match.Result
	for attempt := 0; attempt < 2 && (r == nil || len(r.Failures) > 0); attempt++ {
		r, err = match.Run(t.Context(), match.Config{
			Self: self, Source: func(name string) ([]byte, error) { return os.ReadFile(filepath.Join("..", match.Sources, name)) },
			Command: "test", Rounds: 1, Run: time.Millisecond, Expiry: 2 * time.Second, First: 2 * time.Millisecond, Small: true,
			Servers: servers.Config{StartEtcd: servers.EtcdInstalled(), Nodes: nodes}, Log: t.Logf,
		})
		require.NoError(t, err)
	}
	if len(r.Failures) > 0 { // sessions expire by themselves on this machine: then check only that the result says so
		for _, f := range r.Failures {
			require.Contains(t, report.Text(r, false), f)
		}
		return
	}
	require.Equal(t, len(match.Contestants), len(r.Contestants)+len(r.Left))
	for _, why := range r.Left {
		require.Contains(t, why, "apt-get install")
	}
	require.Len(t, r.Settings, len(match.Settings))
	cells := map[string]match.Cell{}
	for _, c := range r.Cells {
		cells[c.Setting+" "+c.Contestant] = c
		require.Positive(t, c.Rate)
		require.Positive(t, c.Cycles)
		require.Zero(t, c.Overlaps)
		require.LessOrEqual(t, c.Acquire.P50, c.Acquire.P99)
		require.LessOrEqual(t, c.HandOver.P50, c.HandOver.P99)
	}
	for _, c := range r.Contestants {
		if c.Mode {
			continue
		}
		for _, s := range r.Settings {
			require.Contains(t, cells, s.Name+" "+c.Name)
		}
	}
	require.Contains(t, cells, "goroutines local")
	checkExtras(t, r)
	for _, md := range []bool{false, true} {
		text := report.Text(r, md)
		for _, c := range r.Contestants {
			require.Contains(t, text, c.Title)
		}
		for _, s := range r.Settings {
			require.Contains(t, text, s.Title)
		}
		require.NotContains(t, text, "NaN")
	}
	require.Contains(t, string(report.SVG(r)), "<svg")
}

// checkExtras checks what the recipe fixes: the writes and reads of a cycle without other contenders, and that no
// contestant gets the lock early.
func checkExtras(t *testing.T, r *match.Result) {
	t.Helper()
	locks := 0
	for _, c := range r.Contestants {
		if c.Lock && !c.Mode {
			locks++
		}
	}
	require.Len(t, r.Kills, locks)
	for _, k := range r.Kills {
		require.Positive(t, k.Took, k.Contestant)
	}
	require.Len(t, r.Lines, 2*locks)
	for _, l := range r.Lines {
		require.GreaterOrEqual(t, l.Requests, int64(l.Waiters+1), "%s: each deletes its znode", l.Contestant)
		require.Equal(t, l.Waiters, l.Releases)
		require.Equal(t, l.Waiters, l.HandOver.N)
	}
	seen := map[string]bool{}
	for _, w := range r.Wire {
		seen[w.Setting] = true
		// On a busy machine the amount between two of the contestant's lines, a millisecond apart, is not predictable.
		require.GreaterOrEqual(t, w.Bytes[0], int64(0))
		require.GreaterOrEqual(t, w.Bytes[1], int64(0))
	}
	require.Len(t, seen, 3)
}

func TestUnknownNamesAreRefused(t *testing.T) {
	_, err := match.Run(t.Context(), match.Config{Only: []string{"zklock", "tango"}})
	require.ErrorContains(t, err, `"tango"`)
}
