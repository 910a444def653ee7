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

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Who is woken, and by what: scenarios 27 and 28.

// scenario 27: a thousand waiters, one release: exactly one is woken.
func TestScenario27_OneReleaseWakesOneOfAThousandWaiters(t *testing.T) {
	const waiters, clients = 1000, 8
	simTest(t, func(s *sim) {
		dir, holder := s.dir("/locks/a"), s.client()
		h := s.lock(holder.Mutex(dir))
		var ms []*zklock.Mutex
		var cs []*simClient
		for range clients {
			c := s.client()
			cs, ms = append(cs, c), append(ms, c.Mutex(dir))
		}
		ctx, cancel := context.WithCancel(s.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		var got []*zklock.Hold
		for i := range waiters {
			wg.Go(func() {
				if h, err := ms[i%clients].Lock(ctx); err == nil {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, h)
				}
			})
		}
		synctest.Wait()
		require.Len(s, s.srv.Children(dir), waiters+1)
		time.Sleep(10 * time.Second) // all have settled
		for range 3 {
			synctest.Wait()
			line, before := contenders(s.srv.Children(dir)), s.srv.Requests()
			woken := func() (n int) {
				for _, c := range cs {
					n += s.notified(c.id())
				}
				return n
			}
			events := woken()
			own := slices.ContainsFunc(cs, func(c *simClient) bool {
				return slices.Contains(s.watched(c.id()), dir+"/"+line[0]) && slices.ContainsFunc(got, func(g *zklock.Hold) bool {
					return g == h
				})
			})
			s.unlock(h)
			synctest.Wait()
			mu.Lock()
			h = got[len(got)-1]
			mu.Unlock()
			require.Equal(s, line[1], path.Base(h.Node()), "the next in line")
			after := s.srv.Requests()
			extra := 0
			if own { // the old holder was one of them, and watched its own znode, from another session than the next
				extra = 1
			}
			require.LessOrEqual(s, woken()-events, 1+extra)
			require.GreaterOrEqual(s, woken()-events, 1)
			require.LessOrEqual(s, after[zktest.OpGetChildren2], before[zktest.OpGetChildren2]+1, "nobody else looks")
			require.Equal(s, before[zktest.OpSetWatches], after[zktest.OpSetWatches], "nobody set another watch")
		}
		mu.Lock()
		require.Len(s, got, 3)
		mu.Unlock()
		cancel()
		wg.Wait()
		s.unlock(h)
		s.empty(10*time.Second, dir)
		require.Zero(s, s.srv.WatchCount())
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

// scenario 28: events arrive that say nothing, twice, or too much: the condition is read again.
func TestScenario28_AnEventIsNeverTakenForTheCondition(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		l := &simLine{s: s}
		l.enter(3, a.Mutex(dir))
		call := simGo(s.Context(), b.Mutex(dir).Lock)
		require.False(s, call.over())
		line := contenders(s.srv.Children(dir))
		before := dir + "/" + line[2]
		tell := func(typ int32, path string) {
			s.Helper()
			require.NoError(s, s.srv.SendFrame(b.id(), event(typ, path)))
			require.False(s, call.over(), "event %d of %s", typ, path)
		}
		for _, typ := range []int32{eventCreated, eventData, eventChildren, eventDeleted, eventDeleted, eventDeleted, 99, -1} {
			tell(typ, before) // though the one before it stands, and so do others before that
			require.Contains(s, s.watched(b.id()), before)
		}
		tell(eventDeleted, dir+"/"+line[0])
		tell(eventDeleted, dir)
		tell(eventDeleted, "")
		tell(eventDeleted, "/elsewhere")
		require.NoError(s, s.srv.SetData(before, []byte("x"))) // a true one, of a change that is none here
		require.False(s, call.over())
		require.Contains(s, s.watched(b.id()), before)
		require.Equal(s, upTo(3), l.drain())
		h := call.get(s)
		for _, typ := range []int32{eventDeleted, eventCreated, eventData} { // late, and twice
			require.NoError(s, s.srv.SendFrame(b.id(), event(typ, before)))
		}
		time.Sleep(time.Second)
		s.owned(b, h)
		require.Equal(s, []string{line[3]}, s.srv.Children(dir))
	})
}

// scenario 28, where only one stands before: its end would be believed without another look, but nothing else is.
func TestScenario28_OnlyTheEndOfTheLastOneBeforeItIsBelievedWithoutALook(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		h := s.lock(a.Mutex(dir))
		call := simGo(s.Context(), b.Mutex(dir).Lock)
		require.False(s, call.over())
		for range 3 {
			require.NoError(s, s.srv.SetData(h.Node(), []byte("x"))) // an event of it, and a true one
			require.False(s, call.over())
			for _, typ := range []int32{eventCreated, eventData, eventChildren, 99, -1} {
				require.NoError(s, s.srv.SendFrame(b.id(), event(typ, h.Node())))
				require.False(s, call.over(), "event %d", typ)
			}
			require.Contains(s, s.watched(b.id()), h.Node())
			time.Sleep(time.Second)
		}
		lists := s.srv.Requests()[zktest.OpGetChildren2]
		s.unlock(h)
		s.owned(b, call.get(s))
		require.Equal(s, lists, s.srv.Requests()[zktest.OpGetChildren2], "that it is the first now is certain")
	})
}

// scenario 28, out of order: the one further back hears first that those before it have gone, and the one before it
// hears of the holder's end when its own place has been gone for long.
func TestScenario28_EventsThatArriveOutOfOrderMakeNoTwoHolders(t *testing.T) {
	for _, ownFirst := range []bool{true, false} {
		name := map[bool]string{true: "its place went first", false: "its place went last"}[ownFirst]
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a, b, c := s.dir("/locks/a"), s.client(), s.client(), s.client()
				h := s.lock(a.Mutex(dir))
				second := simGo(s.Context(), b.Mutex(dir).Lock)
				require.False(s, second.over())
				third := simGo(s.Context(), c.Mutex(dir).Lock)
				require.False(s, third.over())
				time.Sleep(time.Second)
				line := contenders(s.srv.Children(dir))
				late := s.srv.Inject(zktest.HoldReply().Op(zktest.OpNotify).Session(b.id()))
				for _, own := range []bool{ownFirst, !ownFirst} {
					if own {
						require.NoError(s, s.srv.Delete(dir+"/"+line[1]))
					} else {
						s.unlock(h)
					}
					require.False(s, second.over())
					require.NoError(s, s.srv.SendFrame(c.id(), event(eventDeleted, dir+"/"+line[1])))
				}
				s.owned(c, third.get(s))
				late.Remove()
				if second.over() && !ownFirst { // it had been first in line, for a moment, long ago
					require.ErrorIs(s, second.get(s).Err(), zklock.ErrNodeDeleted)
					s.owned(c, third.hold)
					return
				}
				require.False(s, second.over(), "it has no place: that the one before it has gone is of no use to it")
				s.owned(c, third.hold)
				s.unlock(third.hold)
				s.owned(b, second.get(s))
				require.NotEqual(s, line[1], path.Base(second.hold.Node()))
			})
		})
	}
}
