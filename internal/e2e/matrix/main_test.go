package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheFlagsChooseTheSuites(t *testing.T) {
	whole := choose(false, false, "")
	require.Len(t, whole, len(suites))
	quick := choose(true, false, "")
	require.NotEmpty(t, quick)
	require.Less(t, len(quick), len(whole))
	for _, s := range quick {
		require.False(t, s.long, s.name)
	}
	brief := choose(true, true, "")
	require.NotEmpty(t, brief)
	for _, s := range brief {
		require.Contains(t, s.args, "-run", "%s: a few tests of it", s.name)
		require.Contains(t, s.name, "(some)")
	}
	require.Len(t, choose(false, false, "zklock"), 1)
}

func TestReportKeepsRowsOfSuitesThatDidNotRunIfTheVersionsAreTheSame(t *testing.T) {
	out := filepath.Join(t.TempDir(), "versions.md")
	versions := []server{{version: "3.8.0"}, {version: "3.9.3"}}
	write := func(suite string, versions []server, results ...result) string {
		t.Helper()
		require.NoError(t, report(out, choose(false, false, suite), versions, [][]result{results}))
		page, err := os.ReadFile(out)
		require.NoError(t, err)
		return string(page)
	}
	write("zklock", versions, result{passed: 1}, result{passed: 2, failed: []string{"TestA"}})
	page := write("session", versions, result{passed: 3}, result{passed: 4, again: 1, skipped: 2})
	require.Contains(t, page, `| suite | 3.8.0 | 3.9.3 |
|---|---|---|
| session | 3 passed, 0 s | 4 passed (1 at the second try), 2 skipped, 0 s |
| zklock | 1 passed, 0 s | **1 of 3 failed** (TestA), 0 s |
`)
	require.NotContains(t, write("session", versions[:1], result{passed: 3}), "zklock")
}
