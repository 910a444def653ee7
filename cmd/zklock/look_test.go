//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

func plant(t *testing.T, srv *zktest.Server, dir string, names ...string) {
	t.Helper()
	require.NoError(t, srv.Create(dir, nil))
	for _, name := range names {
		require.NoError(t, srv.Create(dir+"/"+name, []byte("right\u202eto left")))
	}
}

// Scenario 50: foreign names do not stop ls for the rest of the tree.
func TestLsIsNotStoppedByLongNames(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		long := strings.Repeat("n", 10_000)
		plant(t, srv, "/"+long, "x-lock-0000000000")
		plant(t, srv, "/a", long+"-lock-0000000000", "x-lock-0000000001")
		plant(t, srv, "/turned\u202e", "x-lock-0000000000")
		w, err := findLocks(t.Context(), c, "/", walkLimits{1000, 32}, 1)
		require.NoError(t, err)
		require.Len(t, w.locks, 3)
		require.Equal(t, 1, w.locks[0].Waiting) // /a: the locks are by path
		require.Len(t, w.locks[0].Line, 1)
		require.Contains(t, string(w.locks[0].Line[0].Data), "right",
			"a znode with a long name is read, too")
		var out bytes.Buffer
		require.NoError(t, printLocks(&out, w.locks, time.Now()))
		require.Less(t, out.Len(), 2000)
		require.NotContains(t, out.String(), "\u202e")
		require.False(t, w.cut)
	})
}
