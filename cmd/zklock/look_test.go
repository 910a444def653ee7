//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
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
		require.Equal(t, 1, w.locks[0].Waiting)
		require.Len(t, w.locks[0].Line, 1)
		require.Contains(t, string(w.locks[0].Line[0].Data), "right", "znodes below a long name are read, too")
		var out bytes.Buffer
		require.NoError(t, printLocks(&out, w.locks, time.Now()))
		require.Less(t, out.Len(), 2000)
		require.NotContains(t, out.String(), "\u202e")
		require.False(t, w.cut)
	})
}

// A look at a large tree is repeated less often: top spends at most a tenth of the time.
func TestTopLooksLessOftenWhenALookTakesLong(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		plant(t, srv, "/a", "x-lock-0000000000")
		srv.Inject(zktest.DelayReply(100 * time.Millisecond).Op(zktest.OpGetChildren2)) // three one after the other
		top := top{a: &app{out: &bytes.Buffer{}}, root: "/", every: time.Second, rows: 1, limits: walkLimits{1000, 32}}
		seen := make(chan sight)
		done := make(chan struct{})
		open := make(chan string, 1)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		go func() { defer close(done); top.watch(ctx, c, open, seen) }()
		var looks []sight
		for over := false; !over; {
			select {
			case s := <-seen:
				if ctx.Err() != nil {
					continue // interrupted
				}
				require.NoError(t, s.err)
				require.GreaterOrEqual(t, s.took, 300*time.Millisecond)
				require.Equal(t, "/a", s.locks[0].Path)
				looks = append(looks, s)
			case <-done:
				over = true
			}
		}
		require.LessOrEqual(t, len(looks), 20)
		require.GreaterOrEqual(t, len(looks), 15)
	})
}

// The open queue is read by itself, at once and then at its own interval, however long a look at the tree takes.
func TestTopReadsTheQueueThatIsOpen(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		plant(t, srv, "/a", "x-lock-0000000000", "x-lock-0000000001")
		plant(t, srv, "/b", "x-lock-0000000000")
		for i := range 300 {
			require.NoError(t, srv.Create(fmt.Sprintf("/b/other%d", i), nil))
		}
		top := top{root: "/", every: time.Second, rows: 1, limits: walkLimits{1000, 32}}
		top.a = &app{}
		top.a.conn.patience = time.Minute
		seen, open, done := make(chan sight), make(chan string, 1), make(chan struct{})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		go func() { defer close(done); top.watch(ctx, c, open, seen) }()
		s := <-seen
		require.Len(t, s.locks, 2)
		require.Len(t, s.locks[0].Line, 1)
		v := view{root: "/"}
		v.saw(s)
		require.Empty(t, v.queuePath())
		require.False(t, v.key(keyEnter))
		open <- v.queuePath()
		s = <-seen
		require.Equal(t, "/a", s.queue.Path)
		require.Len(t, s.queue.Line, 2)
		v.saw(s)
		require.True(t, slices.ContainsFunc(v.render(time.Now(), 200, 20), func(line string) bool {
			return strings.Contains(line, "waits")
		}))
		stop()
		<-done
	})
}
