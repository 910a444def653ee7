package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheFlagsChooseTheSuites(t *testing.T) {
	whole := choose(false, false)
	require.Len(t, whole, len(suites))
	quick := choose(true, false)
	require.NotEmpty(t, quick)
	require.Less(t, len(quick), len(whole))
	for _, s := range quick {
		require.False(t, s.long, s.name)
	}
	brief := choose(true, true)
	require.NotEmpty(t, brief)
	for _, s := range brief {
		require.Contains(t, s.args, "-run", "%s: a few tests of it", s.name)
		require.Contains(t, s.name, "(some)")
	}
}
