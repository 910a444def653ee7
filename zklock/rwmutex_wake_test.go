package zklock_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest/fault"
)

// Tests of a read/write lock: which contender is watched, which one a release wakes, and what a try costs.

// line is a queue of contenders, each with its own session.
type line struct {
	s     *locktest.Sim
	dir   string
	want  string // 'W' or 'R' for each contender
	cs    []*locktest.Client
	calls []*locktest.Call
}

// queueOf makes contenders enter a queue, in the given order.
func queueOf(s *locktest.Sim, dir, want string) *line {
	l := &line{s: s, dir: dir, want: want}
	for _, k := range want {
		c := s.Client()
		m := c.RWMutex(dir)
		call := m.Lock
		if k == 'R' {
			call = m.RLock
		}
		l.cs = append(l.cs, c)
		l.calls = append(l.calls, s.Start(call))
	}
	return l
}

// nodes returns the line's znodes in order.
func (l *line) nodes() []string {
	var nodes []string
	for _, name := range locktest.Contenders(l.s.Server.Children(l.dir)) {
		nodes = append(nodes, l.dir+"/"+name)
	}
	return nodes
}

// heard returns the number of notifications to each contender.
func (l *line) heard() []int {
	synctest.Wait()
	var n []int
	for _, c := range l.cs {
		n = append(n, l.s.Notified(c.SessionID()))
	}
	return n
}

// A reader watches only the nearest writer before it; a writer watches its immediate predecessor.
func TestAReaderWatchesTheNearestWriterAndAWriterItsPredecessor(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(map[bool]string{false: "at once", true: "settled"}[settled], func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				l := queueOf(s, s.Dir("/locks/a"), "RWRRWRRW")
				if settled {
					time.Sleep(time.Minute)
				}
				nodes := l.nodes()
				for i, before := range []int{-1, 0, 1, 1, 3, 4, 4, 6} { // whom contender i watches
					var want []string
					if before >= 0 {
						want = append(want, nodes[before])
					}
					if i == 5 || i == 6 { // behind a writer that waits: the mark of that one, which says whether it has held
						want = append(want, nodes[before]+"-released")
					}
					if settled || before >= 0 {
						want = append(want, nodes[i]) // its own: a waiter watches it from the first moment
					}
					got := s.Watched(l.cs[i].SessionID())
					slices.Sort(got)
					slices.Sort(want)
					require.Equal(s, want, got, "contender %d", i)
				}
			})
		})
	}
}

// A writer's release wakes exactly the readers up to the next writer: one notification for each, and none for other contenders.
func TestAWritersReleaseWakesExactlyTheReadersUpToTheNextWriter(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		const readers = 20
		want := "W"
		for range readers {
			want += "R"
		}
		l := queueOf(s, s.Dir("/locks/a"), want+"WRRRW")
		before, asked := l.heard(), s.Server.Requests()
		s.Unlock(l.calls[0].Get(s))
		after := l.heard()
		for i := range l.cs {
			woken := 0
			if i >= 1 && i <= readers {
				woken = 1
			}
			require.Equal(s, before[i]+woken, after[i], "events of contender %d", i)
			require.Equal(s, i <= readers, l.calls[i].Over(), "contender %d", i)
		}
		require.Equal(s, asked[fault.OpGetChildren2], s.Server.Requests()[fault.OpGetChildren2],
			"the writer was the only one in their way: nobody need look again")

		// Only the reader just before the writer wakes it, in whichever order the readers leave; then the writer lists again.
		for i := 1; i <= readers; i++ {
			before = l.heard()
			s.Unlock(l.calls[i].Get(s))
			after = l.heard()
			for j := range l.cs {
				woken := 0
				if j == i || i == readers && j == readers+1 { // each watches its own znode as well, since it has waited
					woken = 1
				}
				require.Equal(s, before[j]+woken, after[j], "events of contender %d when reader %d went", j, i)
			}
		}
		require.True(s, l.calls[readers+1].Over())
	})
}

// A reader that leaves while others before it stay wakes the writer, which then watches the nearest remaining reader.
func TestAWriterWhosePredecessorGoesWatchesTheNextReaderDown(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		l := queueOf(s, s.Dir("/locks/a"), "RRRW")
		for i := 2; i >= 0; i-- {
			nodes := l.nodes()
			synctest.Wait()
			require.ElementsMatch(s, []string{nodes[i], nodes[len(nodes)-1]}, s.Watched(l.cs[3].SessionID()), "and its own")
			require.False(s, l.calls[3].Over())
			s.Unlock(l.calls[i].Get(s))
		}
		s.Unlock(l.calls[3].Get(s))
		s.NothingLeft(l.dir)
	})
}
