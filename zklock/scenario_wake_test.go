package zklock_test

import (
	"context"
	"encoding/binary"
	"path"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Scenarios 27 and 28: which contender is woken, and by what.

// scenario 27: a thousand waiters, one release: exactly one is woken.
func TestScenario27_OneReleaseWakesOneOfAThousandWaiters(t *testing.T) {
	const waiters, clients = 1000, 8
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, holder := s.Dir("/locks/a"), s.Client()
		h := s.Lock(holder.Mutex(dir))
		var ms []*zklock.Mutex
		var cs []*locktest.Client
		for range clients {
			c := s.Client()
			cs, ms = append(cs, c), append(ms, c.Mutex(dir))
		}
		ctx, cancel := context.WithCancel(s.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		var got []*zklock.Hold
		for i := range waiters {
			wg.Go(func() {
				if _, h, err := ms[i%clients].Lock(ctx); err == nil {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, h)
				}
			})
		}
		synctest.Wait()
		require.Len(s, s.Server.Children(dir), waiters+1)
		time.Sleep(10 * time.Second) // all have settled
		for range 3 {
			synctest.Wait()
			line, before := locktest.Contenders(s.Server.Children(dir)), s.Server.Requests()
			woken := func() (n int) {
				for _, c := range cs {
					n += s.Notified(c.SessionID())
				}
				return n
			}
			events := woken()
			own := slices.ContainsFunc(cs, func(c *locktest.Client) bool {
				return slices.Contains(s.Watched(c.SessionID()), dir+"/"+line[0]) && slices.ContainsFunc(got, func(g *zklock.Hold) bool {
					return g == h
				})
			})
			s.Unlock(h)
			synctest.Wait()
			mu.Lock()
			h = got[len(got)-1]
			mu.Unlock()
			require.Equal(s, line[1], path.Base(h.Node()), "the next in line")
			after := s.Server.Requests()
			extra := 0
			if own { // the old holder, of another session than the next one, watched its own znode
				extra = 1
			}
			require.LessOrEqual(s, woken()-events, 2+extra) // of its mark, and of its deletion
			require.GreaterOrEqual(s, woken()-events, 1)
			require.Equal(s, after[fault.OpGetChildren2], before[fault.OpGetChildren2], "nobody looks")
			require.Equal(s, before[fault.OpSetWatches], after[fault.OpSetWatches], "nobody set another watch")
		}
		mu.Lock()
		require.Len(s, got, 3)
		mu.Unlock()
		cancel()
		wg.Wait()
		s.Unlock(h)
		s.Empty(10*time.Second, dir)
		require.Zero(s, s.Server.WatchCount())
	})
}

// event is a notification as a server sends it.
func event(typ int32, path string) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0xffffffff) // xid
	b = binary.BigEndian.AppendUint64(b, 0xffffffffffffffff)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(typ))
	b = binary.BigEndian.AppendUint32(b, 3) // connected
	b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
	return append(b, path...)
}

// The types of events.
const (
	eventCreated, eventDeleted, eventData, eventChildren int32 = 1, 2, 3, 4
)

// scenario 28: events arrive without a change, twice, or for other changes: the condition is read again.
func TestScenario28_AnEventIsNeverTakenForTheCondition(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		l := &queued{s: s}
		l.enter(3, a.Mutex(dir))
		call := locktest.Go(s.Context(), b.Mutex(dir).Lock)
		require.False(s, call.Over())
		line := locktest.Contenders(s.Server.Children(dir))
		before := dir + "/" + line[2]
		tell := func(typ int32, path string) {
			s.Helper()
			require.NoError(s, s.Server.SendFrame(b.SessionID(), event(typ, path)))
			require.False(s, call.Over(), "event %d of %s", typ, path)
		}
		for _, typ := range []int32{eventCreated, eventData, eventChildren, eventDeleted, eventDeleted, eventDeleted, 99, -1} {
			tell(typ, before) // though its predecessor exists, and so do others before that
			require.Contains(s, s.Watched(b.SessionID()), before)
		}
		tell(eventDeleted, dir+"/"+line[0])
		tell(eventDeleted, dir)
		tell(eventDeleted, "")
		tell(eventDeleted, "/elsewhere")
		require.NoError(s, s.Server.SetData(before, []byte("x"))) // a true one, of a change that does not matter
		require.False(s, call.Over())
		require.Contains(s, s.Watched(b.SessionID()), before)
		require.Equal(s, upTo(3), l.drain())
		h := call.Get(s)
		for _, typ := range []int32{eventDeleted, eventCreated, eventData} { // late, and twice
			require.NoError(s, s.Server.SendFrame(b.SessionID(), event(typ, before)))
		}
		time.Sleep(time.Second)
		s.Owned(b, h)
		require.Equal(s, []string{line[3]}, s.Server.Children(dir))
	})
}

// scenario 28, with one contender before it: the deletion of that one is believed without a list, but no other event is.
func TestScenario28_OnlyTheEndOfTheLastOneBeforeItIsBelievedWithoutALook(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		h := s.Lock(a.Mutex(dir))
		call := locktest.Go(s.Context(), b.Mutex(dir).Lock)
		require.False(s, call.Over())
		for range 3 {
			require.NoError(s, s.Server.SetData(h.Node(), []byte("x"))) // an event of it, and a true one
			require.False(s, call.Over())
			for _, typ := range []int32{eventCreated, eventData, eventChildren, 99, -1} {
				require.NoError(s, s.Server.SendFrame(b.SessionID(), event(typ, h.Node())))
				require.False(s, call.Over(), "event %d", typ)
			}
			require.Contains(s, s.Watched(b.SessionID()), h.Node())
			time.Sleep(time.Second)
		}
		lists := s.Server.Requests()[fault.OpGetChildren2]
		s.Unlock(h)
		s.Owned(b, call.Get(s))
		require.Equal(s, lists, s.Server.Requests()[fault.OpGetChildren2], "that it is the first now is certain")
	})
}

// scenario 28, out of order: the last contender is notified first, that its predecessors are gone; its predecessor is
// notified of the holder's deletion long after its own znode was deleted.
func TestScenario28_EventsThatArriveOutOfOrderMakeNoTwoHolders(t *testing.T) {
	for _, ownFirst := range []bool{true, false} {
		name := map[bool]string{true: "its place went first", false: "its place went last"}[ownFirst]
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b, c := s.Dir("/locks/a"), s.Client(), s.Client(), s.Client()
				h := s.Lock(a.Mutex(dir))
				second := locktest.Go(s.Context(), b.Mutex(dir).Lock)
				require.False(s, second.Over())
				third := locktest.Go(s.Context(), c.Mutex(dir).Lock)
				require.False(s, third.Over())
				time.Sleep(time.Second)
				line := locktest.Contenders(s.Server.Children(dir))
				late := s.Server.Inject(fault.HoldReply().Op(fault.OpNotify).Session(b.SessionID()))
				for _, own := range []bool{ownFirst, !ownFirst} {
					if own {
						require.NoError(s, s.Server.Delete(dir+"/"+line[1]))
					} else {
						s.Unlock(h)
					}
					require.False(s, second.Over())
					require.NoError(s, s.Server.SendFrame(c.SessionID(), event(eventDeleted, dir+"/"+line[1])))
				}
				s.Owned(c, third.Get(s))
				late.Remove()
				if second.Over() && !ownFirst { // it had been first in line for a moment, long before
					require.ErrorIs(s, second.Get(s).Err(), zklock.ErrNodeDeleted)
					s.Owned(c, third.Hold)
					return
				}
				require.False(s, second.Over(), "it has no place: that the one before it has gone is of no use to it")
				s.Owned(c, third.Hold)
				s.Unlock(third.Hold)
				s.Owned(b, second.Get(s))
				require.NotEqual(s, line[1], path.Base(second.Hold.Node()))
			})
		})
	}
}
