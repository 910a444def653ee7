package session_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

// Watches of all kinds share paths while connections break. In the end no watch that has not fired
// has missed a change.
func TestNoWatchMissesAChangeWhateverItSharesItsPathWith(t *testing.T) {
	locktest.EachSeed(t, watchSeeds, func(t *testing.T, seed uint64) {
		version := zktest.WithVersion([]zktest.Version{zktest.Version38, zktest.Version39}[seed%2])
		bubble(t, func(t *testing.T, srv *zktest.Server) { watchAtRandom(t, srv, seed) }, version)
	})
}

const watchSeeds = 200

// randomWatch is a watch that a random call has set.
type randomWatch struct {
	*session.Watch
	path string // or "/dir*", the children of /dir
	all  bool   // by WatchAll
	zxid int64  // of the list
}

// requireTold requires that a watch which has not fired has missed no change, and closes it.
func requireTold(t *testing.T, srv *zktest.Server, w randomWatch) {
	t.Helper()
	if fired(w.Watch) {
		return
	}
	if w.path == "/dir*" {
		n, _ := srv.Node("/dir")
		require.LessOrEqual(t, n.Stat.Pzxid, w.zxid, "children have changed, and nobody tells")
	} else {
		_, stands := srv.Node(w.path)
		require.Equal(t, stands, w.Exists, w.path)
		require.True(t, stands || !w.all, "%s is gone, and nobody tells", w.path)
	}
	w.Close()
}

// watchAny sets watches of one of the three kinds, in a new goroutine, and returns their number.
func watchAny(
	t *testing.T, s *session.Session, kind int, paths []string, results chan<- randomWatch,
) (watches int) {
	switch kind {
	case 0:
		go func() {
			w, err := s.Watch(t.Context(), paths[0])
			require.NoError(t, err)
			results <- randomWatch{w, paths[0], false, 0}
		}()
	case 1:
		go func() {
			ws, err := s.WatchAll(t.Context(), paths...)
			require.NoError(t, err)
			for i, w := range ws {
				results <- randomWatch{w, paths[i], true, 0}
			}
		}()
		return len(paths)
	case 2:
		go func() {
			w, _, stat, err := s.WatchChildren(t.Context(), "/dir")
			require.NoError(t, err)
			results <- randomWatch{w, "/dir*", false, stat.Pzxid}
		}()
	}
	return 1
}

func watchAtRandom(t *testing.T, srv *zktest.Server, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	require.NoError(t, srv.Create("/dir", nil))
	s := open(t, srv)
	var names []string // of unique names, never used again
	results := make(chan randomWatch, 10000)
	calls := 0
	next := 0
	for range 80 {
		path := "/dir"
		if len(names) > 0 && rnd.IntN(4) > 0 {
			path = names[max(0, len(names)-1-rnd.IntN(3))]
		}
		switch rnd.IntN(12) {
		case 0, 1:
			next++
			names = append(names, fmt.Sprintf("/dir/n%d", next))
			require.NoError(t, srv.Create(names[len(names)-1], nil))
		case 2, 3:
			if path != "/dir" {
				_ = srv.Delete(path)
			}
		case 4:
			_ = srv.SetData(path, []byte("x"))
		case 5:
			srv.DropConnections()
		case 6, 7:
			calls += watchAny(t, s, 0, []string{path}, results)
		case 8, 9:
			paths := []string{path}
			if len(names) > 0 {
				if other := names[rnd.IntN(len(names))]; other != path {
					paths = append(paths, other)
				}
			}
			if path == "/dir" {
				paths = paths[1:]
			}
			calls += watchAny(t, s, 1, paths, results)
		case 10:
			calls += watchAny(t, s, 2, nil, results)
		case 11:
			select {
			case w := <-results:
				calls--
				w.Close()
			default:
			}
		}
		if rnd.IntN(3) == 0 {
			synctest.Wait()
		} else if rnd.IntN(6) == 0 {
			time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		}
	}
	time.Sleep(5 * time.Second)
	synctest.Wait()
	require.Len(t, results, calls)
	for range calls {
		requireTold(t, srv, <-results)
	}
	requireNoWatches(t, srv, s)
}
