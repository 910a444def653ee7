package zklock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Reentrancy of the read/write lock: what a context that comes from a hold may ask for.

// rwUnder is call with the context of a hold.
func rwUnder(h *zklock.Hold, call rwCall) rwCall {
	return func(context.Context) (*zklock.Hold, error) { return call(h.Context()) }
}

// rwReaders tells which kinds of contenders stand in line, in order: "WRR".
func rwReaders(s *sim, dir string) string {
	synctest.Wait()
	var line strings.Builder
	for _, name := range contenders(s.srv.Children(dir)) {
		switch {
		case strings.Contains(name, "-__WRIT__"):
			line.WriteByte('W')
		case strings.Contains(name, "-__READ__"):
			line.WriteByte('R')
		}
	}
	return line.String()
}

// The write lock under the write lock counts up, and the last Unlock releases, whichever that is.
func TestTheWriteLockUnderTheWriteLockCountsUp(t *testing.T) {
	for _, outerFirst := range []bool{true, false} {
		t.Run(map[bool]string{true: "outer released first", false: "inner released first"}[outerFirst], func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, c := s.dir("/locks/a"), s.client()
				m := c.RWMutex(dir, zklock.WithReentrancy())
				first := rwTake(s, m.Lock)
				second := rwTake(s, rwUnder(first, m.Lock))
				require.Equal(s, first.Token(), second.Token())
				require.Equal(s, first.Node(), second.Node())
				require.Len(s, s.srv.Children(dir), 1)
				_, err := m.Downgrade(s.Context(), first)
				require.ErrorContains(s, err, "held 2 times")
				require.NoError(s, first.Err(), "a downgrade that is refused changes nothing")
				waiter := rwAside(s, s.client().RWMutex(dir).RLock)
				if !outerFirst {
					first, second = second, first
				}
				s.unlock(first)
				require.NoError(s, second.Err())
				require.ErrorIs(s, first.Unlock(s.Context()), zklock.ErrNotHeld)
				require.False(s, waiter.over())
				r, err := m.Downgrade(s.Context(), second)
				require.NoError(s, err, "the last one can be downgraded")
				s.unlock(waiter.get(s))
				s.unlock(r)
				rwNothingLeft(s, dir)
			})
		})
	}
}

// A read lock under one's own write lock costs nothing, and survives the write lock's Unlock as a read lock: other
// readers come in, writers do not.
func TestAReadUnderTheWriteLockSurvivesItsUnlockAsARead(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		m := c.RWMutex(dir, zklock.WithReentrancy())
		w := rwTake(s, m.Lock)
		asked := s.srv.Requests()
		r := rwTake(s, rwUnder(w, m.RLock))
		again := rwTake(s, rwUnder(r, m.TryRLock))
		deeper := rwTake(s, rwUnder(r, m.Lock)) // the write lock is still held: this is a write under a write
		s.unlock(deeper)
		require.Equal(s, asked, s.srv.Requests(), "nothing was asked")
		writer, reader := rwAside(s, s.client().RWMutex(dir).Lock), rwAside(s, s.client().RWMutex(dir).RLock)
		require.Equal(s, "WWR", rwReaders(s, dir))

		s.unlock(w)
		require.ErrorIs(s, context.Cause(w.Context()), zklock.ErrUnlocked)
		require.Equal(s, "RWR", rwReaders(s, dir))
		for _, h := range []*zklock.Hold{r, again} {
			s.owned(c, h)
			require.NoError(s, h.Check(s.Context()))
		}
		early := rwTake(s, rwUnder(r, m.RLock))
		_, err := m.Lock(r.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock, "there is only a read lock left")
		time.Sleep(time.Hour)
		require.NoError(s, r.Err(), "that the writer's znode went is no loss")
		require.False(s, writer.over())
		require.False(s, reader.over(), "it came behind the writer")

		s.unlock(r)
		s.unlock(early)
		require.False(s, writer.over(), "one read is left")
		s.unlock(again)
		s.unlock(writer.get(s))
		s.unlock(reader.get(s))
		rwNothingLeft(s, dir)
	})
}

// A read lock under the write lock that is released before the write lock leaves the write lock as it was.
func TestAReadUnderTheWriteLockThatEndsFirstLeavesTheWriteLock(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		m := c.RWMutex(dir, zklock.WithReentrancy())
		w := rwTake(s, m.Lock)
		s.unlock(rwTake(s, rwUnder(w, m.RLock)))
		require.Equal(s, "W", rwReaders(s, dir))
		s.owned(c, w)
		s.unlock(w)
		rwNothingLeft(s, dir)
	})
}

// A read lock under a read lock counts up with reentrancy, past a writer that waits; without, it is refused, since
// waiting behind that writer would never end.
func TestAReadUnderAReadPassesAWriterThatWaitsOnlyWithReentrancy(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		m := c.RWMutex(dir, zklock.WithReentrancy())
		r := rwTake(s, m.RLock)
		writer := rwAside(s, s.client().RWMutex(dir).Lock)
		second := rwTake(s, rwUnder(r, m.RLock))
		_, err := c.RWMutex(dir).RLock(r.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		_, err = m.TryRLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy, "a context that does not come from the hold has to wait")
		s.unlock(r)
		require.False(s, writer.over())
		s.owned(c, second)
		s.unlock(second)
		s.unlock(writer.get(s))
		rwNothingLeft(s, dir)
	})
}

// Without reentrancy every lock under a hold of the same lock is refused at once.
func TestWithoutReentrancyALockUnderAHoldIsADeadlock(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		m := c.RWMutex(dir)
		for _, outer := range []rwCall{m.Lock, m.RLock} {
			h := rwTake(s, outer)
			for _, inner := range []rwCall{m.Lock, m.RLock, m.TryLock, m.TryRLock} {
				_, err := inner(h.Context())
				require.ErrorIs(s, err, zklock.ErrDeadlock)
			}
			s.unlock(h)
		}
		rwNothingLeft(s, dir)
	})
}

// A Lock under a hold that is being downgraded does not become a writer beside other readers.
func TestALockUnderAHoldThatIsBeingDowngradedIsADeadlock(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a := s.dir("/locks/a"), s.client()
		m := a.RWMutex(dir, zklock.WithReentrancy())
		w := rwTake(s, m.Lock)
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.id()).Once())
		call := simGo(s.Context(), rwDowngrade(m, w))
		<-in.Hit()
		_, err := m.Lock(w.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		read := rwTake(s, rwUnder(w, m.RLock))
		in.Release()
		r := call.get(s)
		s.owned(a, r)
		s.unlock(r)
		s.owned(a, read)
		s.unlock(read)
		rwNothingLeft(s, dir)
	})
}

// The write lock's Unlock and that of a read under it come at the same time: nothing is left of either.
func TestAWriteAndAReadUnderItThatAreReleasedTogetherLeaveNothing(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a := s.dir("/locks/a"), s.client()
		m := a.RWMutex(dir, zklock.WithReentrancy())
		w := rwTake(s, m.Lock)
		r := rwTake(s, rwUnder(w, m.RLock))
		writer := rwAside(s, s.client().RWMutex(dir).Lock)
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.id()).Once())
		write := simGo(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return nil, w.Unlock(ctx) })
		<-in.Hit()
		read := simGo(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return nil, r.Unlock(ctx) })
		synctest.Wait()
		in.Release()
		require.True(s, write.over())
		require.True(s, read.over())
		s.until(5*time.Second, "the writer comes in", writer.over)
		require.NoError(s, write.err)
		require.NoError(s, read.err)
		s.unlock(writer.get(s))
		rwNothingLeft(s, dir)
	})
}

// The write lock is released with a context that is over, while a read under it goes on: it becomes a read lock all
// the same, in the background, and the read is not concerned.
func TestAWriteReleasedWithAContextThatIsOverBecomesAReadInTheBackground(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(map[bool]string{false: "over before", true: "over meanwhile"}[late], func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a := s.dir("/locks/a"), s.client()
				m := a.RWMutex(dir, zklock.WithReentrancy())
				w := rwTake(s, m.Lock)
				r := rwTake(s, rwUnder(w, m.RLock))
				reader := rwAside(s, s.client().RWMutex(dir).RLock)
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				var in *zktest.Injection
				if late {
					in = s.srv.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.id()).Once())
				} else {
					cancel()
				}
				unlock := simGo(ctx, func(ctx context.Context) (*zklock.Hold, error) { return nil, w.Unlock(ctx) })
				if late {
					<-in.Hit()
					cancel()
					require.True(s, unlock.over(), "it does not outlive its context")
					in.Release()
				}
				require.True(s, unlock.over())
				require.ErrorIs(s, unlock.err, context.Canceled)
				s.until(5*time.Second, "the reader comes in", reader.over)
				require.NoError(s, r.Err(), "whose owner has not released it")
				s.owned(a, r)
				s.unlock(r)
				s.unlock(reader.get(s))
				rwNothingLeft(s, dir)
			})
		})
	}
}
