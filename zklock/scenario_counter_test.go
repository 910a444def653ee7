package zklock_test

import (
	"context"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A directory's counter on its way to the end: scenario 49, and how a directory is renewed.

const (
	counterHalf   = 1 << 30
	counterThree4 = 3 << 29
)

// closedParent makes a directory that can't be deleted, since its parent lets nobody delete, at the counter's end.
func closedParent(s *sim, counter int32) string {
	s.Helper()
	dir := s.dir("/locks/a")
	require.NoError(s, s.srv.Create("/locks/a-2", nil))
	other := s.stranger()
	_, err := other.SetACL(s.Context(), "/locks", []zk.ACL{{Perms: zk.PermRead | zk.PermCreate, Scheme: "world", ID: "anyone"}}, -1)
	require.NoError(s, err)
	require.NoError(s, s.srv.SetSequence(dir, counter))
	require.NoError(s, s.srv.SetSequence(dir+"-2", counter))
	return dir
}

// scenario 49: at the counter's end, where all get one number, or negative ones while creates overlap, contenders of
// every kind hold one at a time, in the order in which they entered. (The directory can't be renewed here.)
func TestScenario49_AtTheCountersEndOneHoldsAtATimeInOrder(t *testing.T) {
	for _, kind := range anyKinds {
		for _, counter := range []int32{counterThree4 - 3, math.MaxInt32 - 3, math.MaxInt32, math.MinInt32, -3} {
			for _, overlap := range []int{0, 4} {
				t.Run(fmt.Sprintf("%s from %d, %d overlap", kind.name, counter, overlap), func(t *testing.T) {
					simTest(t, func(s *sim) {
						dir := closedParent(s, counter)
						var calls []*simCall
						for i := range 8 {
							if overlap > 0 && i%3 == 1 {
								require.NoError(s, s.srv.Overlap(dir, overlap))
							}
							calls = append(calls, rwAside(s, kind.lock(s.client().Client, dir)))
						}
						looker := s.client()
						for i, call := range calls {
							held := call.get(s)
							time.Sleep(time.Second)
							for _, later := range calls[i+1:] {
								require.False(s, later.over(), "two holders")
							}
							line, err := looker.Queue(s.Context(), dir)
							require.NoError(s, err)
							require.Len(s, line, len(calls)-i)
							require.Equal(s, held.Node(), line[0].Node, "the holder is shown first")
							require.True(s, line[0].Holds)
							for k := range line[1:] {
								require.False(s, line[k+1].Holds)
								require.Less(s, line[k].Token, line[k+1].Token, "shown in order")
							}
							if kind.name == "election" {
								leader, err := looker.Election(dir).Leader(s.Context())
								require.NoError(s, err)
								require.Equal(s, held.Node(), leader.Node)
							}
							s.unlock(held)
						}
						s.empty(time.Minute, dir)
					})
				})
			}
		}
	}
}

// scenario 49, a downgraded reader: a writer that queued before the downgrade does not come in beside it, nor does any
// reader behind that writer.
func TestScenario49_AtTheCountersEndAWriterWaitsForADowngradedReader(t *testing.T) {
	for _, overlap := range []int{0, 5} {
		simTest(t, func(s *sim) {
			dir := closedParent(s, math.MaxInt32)
			require.NoError(s, s.srv.Overlap(dir, overlap))
			a, b, c := s.client(), s.client(), s.client()
			m := a.RWMutex(dir)
			w := rwTake(s, m.Lock)
			writer := rwAside(s, b.RWMutex(dir).Lock)
			reader := rwAside(s, c.RWMutex(dir).RLock)
			r, err := m.Downgrade(s.Context(), w)
			require.NoError(s, err)
			late := rwAside(s, s.client().RWMutex(dir).Lock)
			time.Sleep(time.Hour)
			require.False(s, writer.over() || reader.over() || late.over(), "beside a reader")
			require.NoError(s, r.Err())
			s.unlock(r)
			h := writer.get(s)
			require.False(s, reader.over() || late.over())
			s.unlock(h)
			s.unlock(reader.get(s))
			s.unlock(late.get(s))
			rwNothingLeft(s, dir)
		})
	}
}

// scenario 49, as above: the writer becomes a reader between another one's list and its look at the czxids.
func TestScenario49_AWriterThatIsGoneSinceTheListMayHaveBecomeAReader(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := closedParent(s, math.MaxInt32), s.client(), s.client()
		w := rwTake(s, a.RWMutex(dir).Lock)
		gate := s.srv.Inject(zktest.Hold().Op(zktest.OpExists).Path(w.Node()).Once())
		writer := rwAside(s, b.RWMutex(dir).Lock)
		<-gate.Hit()
		r, err := a.RWMutex(dir).Downgrade(s.Context(), w)
		require.NoError(s, err)
		gate.Release()
		time.Sleep(time.Minute)
		require.False(s, writer.over(), "a writer beside a reader")
		s.unlock(r)
		s.unlock(writer.get(s))
		rwNothingLeft(s, dir)
	})
}

// A directory whose counter is past the half is renewed when a release finds it empty, with the data, the ACL and the kind
// that it had; tokens grow on. Nobody's request more is needed before that, or for a directory that is younger.
func TestADirectoryPastHalfOfItsCounterIsRenewedWhenItIsEmpty(t *testing.T) {
	for _, kind := range anyKinds {
		t.Run(kind.name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a, b, other := s.dir("/locks/a"), s.client(), s.client(), s.stranger()
				s.unlock(rwTake(s, kind.lock(a.Client, dir))) // a semaphore's size is written
				acl := []zk.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: zk.PermRead, Scheme: "ip", ID: "10.0.0.1"}}
				_, err := other.SetACL(s.Context(), dir, acl, -1)
				require.NoError(s, err)
				before, _ := s.srv.Node(dir)

				require.NoError(s, s.srv.SetSequence(dir, counterHalf-1))
				first := rwTake(s, kind.lock(a.Client, dir))
				s.unlock(first)
				s.empty(time.Minute, dir)
				node, _ := s.srv.Node(dir)
				require.Equal(s, before.Stat.Czxid, node.Stat.Czxid, "not yet")

				second := rwTake(s, kind.lock(a.Client, dir))
				require.Equal(s, fmt.Sprint(counterHalf), path.Base(second.Node())[len(path.Base(second.Node()))-10:])
				third := rwAside(s, kind.lock(b.Client, dir))
				s.unlock(second)
				held := third.get(s)
				node, _ = s.srv.Node(dir)
				require.Equal(s, before.Stat.Czxid, node.Stat.Czxid, "not while somebody stands in it")
				s.unlock(held)
				s.until(time.Minute, "a new directory", func() bool {
					node, _ = s.srv.Node(dir)
					return node.Stat.Czxid > before.Stat.Czxid
				})
				require.Equal(s, before.Data, node.Data)
				require.Equal(s, []zktest.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: 1, Scheme: "ip", ID: "10.0.0.1"}}, node.ACL)
				require.Zero(s, node.Stat.EphemeralOwner)

				last := rwTake(s, kind.lock(b.Client, dir))
				require.True(s, strings.HasSuffix(last.Node(), "0000000000"))
				require.Greater(s, last.Token(), held.Token())
				s.unlock(last)
				s.empty(time.Minute, dir)
				synctest.Wait()
				require.Zero(s, s.srv.WatchCount())
			})
		})
	}
}

// A container stays one, and goes when it is unused like any other.
func TestARenewedContainerStaysAContainer(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := "/locks/a", s.client()
		m := c.Mutex(dir, zklock.WithContainer())
		s.unlock(s.lock(m))
		require.NoError(s, s.srv.SetSequence(dir, counterHalf))
		before, _ := s.srv.Node(dir)
		s.unlock(s.lock(m))
		synctest.Wait()
		node, ok := s.srv.Node(dir)
		require.True(s, ok)
		require.Greater(s, node.Stat.Czxid, before.Stat.Czxid)
		s.until(time.Hour, "the container is gone", func() bool { _, there := s.srv.Node(dir); return !there })
	})
}

// Where it can't be renewed, nothing happens, and nobody's call fails: no permission to delete the directory, or to see
// the digests of its ACL, which would be lost.
func TestADirectoryThatCantBeRenewedIsLeftAsItIs(t *testing.T) {
	for name, acl := range map[string]map[string][]zk.ACL{
		"no permission to delete": {"/locks": {{Perms: zk.PermRead | zk.PermCreate, Scheme: "world", ID: "anyone"}}},
		"no permission to create": {"/locks": {{Perms: zk.PermRead | zk.PermDelete, Scheme: "world", ID: "anyone"}}},
		"digests that are hidden": {"/locks/a": append(zk.DigestACL(zk.PermAll, "u", "p"),
			zk.ACL{Perms: zk.PermRead | zk.PermCreate | zk.PermDelete, Scheme: "world", ID: "anyone"})},
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, c, other := s.dir("/locks/a"), s.client(), s.stranger()
				for p, list := range acl {
					_, err := other.SetACL(s.Context(), p, list, -1)
					require.NoError(s, err)
				}
				before, _ := s.srv.Node(dir)
				for _, counter := range []int32{counterHalf, counterThree4, math.MaxInt32} {
					require.NoError(s, s.srv.SetSequence(dir, counter))
					first := s.lock(c.Mutex(dir))
					second := rwAside(s, c.Mutex(dir).Lock)
					if name != "no permission to create" { // of which nobody hears before
						require.Len(s, s.srv.Children(dir), 2, "it waits in line")
					}
					s.unlock(first)
					s.unlock(second.get(s))
					s.empty(time.Minute, dir)
					node, _ := s.srv.Node(dir)
					require.Equal(s, before.Stat.Czxid, node.Stat.Czxid)
					require.Equal(s, before.ACL, node.ACL)
				}
			})
		})
	}
}

// The claim of a holder that was lost is in the directory's data, and survives the renewal: the delay is waited out.
func TestALockDelayIsWaitedOutAcrossARenewal(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		delay := zklock.WithLockDelay(time.Minute)
		require.NoError(s, s.srv.SetSequence(dir, counterHalf))
		before, _ := s.srv.Node(dir)
		s.lock(a.Mutex(dir, delay))
		require.NoError(s, s.srv.Expire(a.id()))
		_, err := b.Mutex(dir, delay).TryLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		synctest.Wait()
		node, _ := s.srv.Node(dir)
		require.Greater(s, node.Stat.Czxid, before.Stat.Czxid, "renewed by the one that gave up")
		began := time.Now()
		s.unlock(s.lock(b.Mutex(dir, delay)))
		require.GreaterOrEqual(s, time.Since(began), 59*time.Second)
	})
}

// Past three quarters who would have to wait waits outside, until those before it have gone and the directory is renewed;
// then all go on in the new one, one at a time, with greater tokens. Who waits says what for.
func TestPastThreeQuartersWaitersStandOutsideUntilTheDirectoryIsRenewed(t *testing.T) {
	for _, kind := range anyKinds {
		if kind.name == "semaphore" {
			continue // stands in line: see TestScenario49_AtTheCountersEndOneHoldsAtATimeInOrder
		}
		for _, counter := range []int32{counterThree4, math.MaxInt32} {
			t.Run(fmt.Sprint(kind.name, counter), func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, a := s.dir("/locks/a"), s.client()
					require.NoError(s, s.srv.SetSequence(dir, counter))
					first := rwTake(s, kind.lock(a.Client, dir))
					var calls []*simCall
					for range 5 {
						calls = append(calls, rwAside(s, kind.lock(s.client().Client, dir)))
					}
					require.Len(s, s.srv.Children(dir), 1, "the others are outside")
					ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
					defer cancel()
					_, err := kind.lock(s.client().Client, dir)(ctx)
					require.ErrorIs(s, err, context.DeadlineExceeded)
					require.ErrorContains(s, err, "outside until the line has drained")
					time.Sleep(5 * time.Minute)
					require.Len(s, s.srv.Children(dir), 1)

					token := first.Token()
					s.unlock(first)
					for range calls {
						var held *zklock.Hold
						s.until(time.Minute, "the next holder", func() bool {
							calls = slices.DeleteFunc(calls, func(c *simCall) bool {
								if !c.over() {
									return false
								}
								require.Nil(s, held, "two holders")
								held = c.get(s)
								return true
							})
							return held != nil
						})
						require.Greater(s, held.Token(), token)
						token = held.Token()
						require.Contains(s, held.Node(), "000000000", "in the new directory")
						time.Sleep(time.Minute)
						s.unlock(held)
					}
					s.empty(time.Minute, dir)
					synctest.Wait()
					require.Zero(s, s.srv.WatchCount())
				})
			})
		}
	}
}

// A newcomer that need not wait does not: a reader beside readers. Nor does anybody wait outside for ever where other clients
// keep the line busy: after three times it queues inside, and gets its turn in order.
func TestWhoeverStandsOutsideGetsItsTurnWhereOthersKeepTheLineBusy(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b, other := s.dir("/locks/a"), s.client(), s.client(), s.stranger()
		require.NoError(s, s.srv.SetSequence(dir, counterThree4))
		enter := func() string {
			made, err := other.Create(s.Context(), dir+"/x-__WRIT__", nil, session.EphemeralSequential, session.WorldACL())
			require.NoError(s, err)
			return made.Path
		}
		reading := rwTake(s, a.RWMutex(dir).RLock)
		s.unlock(rwTake(s, b.RWMutex(dir).RLock))
		writer := rwAside(s, b.RWMutex(dir).Lock)
		require.Len(s, s.srv.Children(dir), 1, "it waits outside")
		busy := enter()
		s.unlock(reading)
		for range 2 { // another client is in line whenever the one before it goes
			synctest.Wait()
			require.Len(s, s.srv.Children(dir), 1)
			next := enter()
			require.NoError(s, other.Delete(s.Context(), busy, -1))
			busy = next
		}
		synctest.Wait()
		require.Len(s, s.srv.Children(dir), 2, "it waits in line")
		last := enter()
		require.NoError(s, other.Delete(s.Context(), busy, -1))
		s.unlock(writer.get(s))
		require.NoError(s, other.Delete(s.Context(), last, -1))
	})
}
