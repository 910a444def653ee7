package zklock_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Whom a contender of a read/write lock watches, who is woken by a release, and what a try costs.

// rwLine is one contender of a line, each with a session of its own.
type rwLine struct {
	s     *sim
	dir   string
	want  string // 'W' or 'R' for each contender
	cs    []*simClient
	calls []*simCall
}

// rwQueue has contenders enter a line, in the given order.
func rwQueue(s *sim, dir, want string) *rwLine {
	l := &rwLine{s: s, dir: dir, want: want}
	for _, k := range want {
		c := s.client()
		m := c.RWMutex(dir)
		call := m.Lock
		if k == 'R' {
			call = m.RLock
		}
		l.cs = append(l.cs, c)
		l.calls = append(l.calls, rwAside(s, call))
	}
	return l
}

// nodes returns the line's znodes in order.
func (l *rwLine) nodes() []string {
	var nodes []string
	for _, name := range contenders(l.s.srv.Children(l.dir)) {
		nodes = append(nodes, l.dir+"/"+name)
	}
	return nodes
}

// heard returns how many events each contender was sent.
func (l *rwLine) heard() []int {
	synctest.Wait()
	var n []int
	for _, c := range l.cs {
		n = append(n, l.s.notified(c.id()))
	}
	return n
}

// A reader watches the nearest writer below it and nobody else; a writer watches its immediate predecessor.
func TestAReaderWatchesTheNearestWriterAndAWriterItsPredecessor(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(map[bool]string{false: "at once", true: "settled"}[settled], func(t *testing.T) {
			simTest(t, func(s *sim) {
				l := rwQueue(s, s.dir("/locks/a"), "RWRRWRRW")
				if settled {
					time.Sleep(time.Minute)
				}
				nodes := l.nodes()
				for i, before := range []int{-1, 0, 1, 1, 3, 4, 4, 6} { // whom contender i watches
					var want []string
					if before >= 0 {
						want = append(want, nodes[before])
					}
					if settled || before >= 0 {
						want = append(want, nodes[i]) // its own, so as to hear of its deletion: who waits does so from the first moment
					}
					got := s.watched(l.cs[i].id())
					slices.Sort(got)
					slices.Sort(want)
					require.Equal(s, want, got, "contender %d", i)
				}
			})
		})
	}
}

// A writer's release wakes exactly the readers up to the next writer: one event each, and none for anybody else.
func TestAWritersReleaseWakesExactlyTheReadersUpToTheNextWriter(t *testing.T) {
	simTest(t, func(s *sim) {
		const readers = 20
		want := "W"
		for range readers {
			want += "R"
		}
		l := rwQueue(s, s.dir("/locks/a"), want+"WRRRW")
		before, asked := l.heard(), s.srv.Requests()
		s.unlock(l.calls[0].get(s))
		after := l.heard()
		for i := range l.cs {
			woken := 0
			if i >= 1 && i <= readers {
				woken = 1
			}
			require.Equal(s, before[i]+woken, after[i], "events of contender %d", i)
			require.Equal(s, i <= readers, l.calls[i].over(), "contender %d", i)
		}
		require.Equal(s, asked[zktest.OpGetChildren2], s.srv.Requests()[zktest.OpGetChildren2],
			"the writer was the only one in their way: nobody need look again")

		// Of the readers, only the one next to the writer wakes it, whichever order they go in; and it looks again.
		for i := 1; i <= readers; i++ {
			before = l.heard()
			s.unlock(l.calls[i].get(s))
			after = l.heard()
			for j := range l.cs {
				woken := 0
				if j == i || i == readers && j == readers+1 { // each watches its own znode as well, since it has waited
					woken = 1
				}
				require.Equal(s, before[j]+woken, after[j], "events of contender %d when reader %d went", j, i)
			}
		}
		require.True(s, l.calls[readers+1].over())
	})
}

// A reader that goes while others before it stay wakes the writer, which then watches the nearest that is left.
func TestAWriterWhosePredecessorGoesWatchesTheNextReaderDown(t *testing.T) {
	simTest(t, func(s *sim) {
		l := rwQueue(s, s.dir("/locks/a"), "RRRW")
		for i := 2; i >= 0; i-- {
			nodes := l.nodes()
			synctest.Wait()
			require.ElementsMatch(s, []string{nodes[i], nodes[len(nodes)-1]}, s.watched(l.cs[3].id()), "and its own")
			require.False(s, l.calls[3].over())
			s.unlock(l.calls[i].get(s))
		}
		s.unlock(l.calls[3].get(s))
		rwNothingLeft(s, l.dir)
	})
}

// A downgrade wakes the readers behind and the writer next to it, who goes on waiting; nobody else.
func TestADowngradeWakesTheReadersBehindUpToTheNextWriter(t *testing.T) {
	simTest(t, func(s *sim) {
		l := rwQueue(s, s.dir("/locks/a"), "WRRRWRW")
		before := l.heard()
		r, err := l.cs[0].RWMutex(l.dir).Downgrade(s.Context(), l.calls[0].get(s))
		require.NoError(s, err)
		after := l.heard()
		for i := 1; i < len(l.cs); i++ {
			woken := 0
			if i <= 3 {
				woken = 1
			}
			require.Equal(s, before[i]+woken, after[i], "events of contender %d", i)
			require.Equal(s, i <= 3, l.calls[i].over(), "contender %d", i)
		}
		for _, i := range []int{3, 2, 1} {
			s.unlock(l.calls[i].get(s))
			require.False(s, l.calls[4].over(), "readers hold still")
		}
		s.unlock(r)
		for _, call := range l.calls[4:] {
			s.unlock(call.get(s))
		}
		rwNothingLeft(s, l.dir)
	})
}

// A try that finds the lock busy costs one list and no write. A reader's try is busy only for a writer, whether that
// holds or waits; a writer's for anybody.
func TestATryCostsOneReadWhenTheLockIsBusy(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		m := c.RWMutex(dir)
		costs := func(call rwCall) map[zktest.Op]int {
			s.Helper()
			synctest.Wait()
			before, _ := s.srv.Session(c.id())
			h, err := call(s.Context())
			synctest.Wait()
			after, _ := s.srv.Session(c.id())
			if err != nil {
				require.ErrorIs(s, err, zklock.ErrBusy)
			} else {
				s.unlock(h)
			}
			cost := map[zktest.Op]int{}
			for op, n := range after.Requests {
				if d := n - before.Requests[op]; d > 0 && op != zktest.OpPing {
					cost[op] = d
				}
			}
			return cost
		}
		busy := map[zktest.Op]int{zktest.OpGetChildren2: 1}
		free := map[zktest.Op]int{zktest.OpGetChildren2: 2, zktest.OpCreate: 1}
		c.session()
		for _, line := range []struct {
			want        string
			write, read map[zktest.Op]int
		}{
			{"", free, free}, {"R", busy, free}, {"RR", busy, free}, {"W", busy, busy}, {"WR", busy, busy},
			{"RW", busy, busy}, {"RWR", busy, busy},
		} {
			l := rwQueue(s, dir, line.want)
			require.Equal(s, line.write, costs(m.TryLock), "the writer's, behind %q", line.want)
			require.Equal(s, line.read, costs(m.TryRLock), "the reader's, behind %q", line.want)
			require.Equal(s, line.write, costs(c.RWMutex(dir, zklock.WithWait(0)).Lock), "WithWait(0), behind %q", line.want)
			require.Len(s, s.srv.Children(dir), len(line.want), "nothing is left of the tries")
			for i := range l.calls {
				s.unlock(l.calls[i].get(s))
			}
		}
		rwNothingLeft(s, dir)
	})
}

// A try whose way is blocked between its list and its create gives its place up again: nobody waits for it.
func TestATryThatSomebodyForestallsGivesItsPlaceUp(t *testing.T) {
	for _, read := range []bool{false, true} {
		t.Run(map[bool]string{false: "a writer's", true: "a reader's"}[read], func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a, b := s.dir("/locks/a"), s.client(), s.client()
				id := a.id()
				in := s.srv.Inject(zktest.Hold().Op(zktest.OpCreate).Session(id).Once())
				call := a.RWMutex(dir).TryLock
				if read {
					call = a.RWMutex(dir).TryRLock
				}
				try := simGo(s.Context(), call)
				<-in.Hit()
				w := rwTake(s, b.RWMutex(dir).Lock)
				in.Release()
				require.True(s, try.over())
				require.ErrorIs(s, try.err, zklock.ErrBusy)
				require.Len(s, s.srv.Children(dir), 1)
				s.unlock(w)
				rwNothingLeft(s, dir)
			})
		})
	}
}
