package zklock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Tests of the reentrancy of a read/write lock: which locks the context of a hold allows.

// under is call with the context of a hold.
func under(h *zklock.Hold, call locktest.Acquire) locktest.Acquire {
	return func(context.Context) (*zklock.Hold, error) { return call(h.Context()) }
}

// readers returns the kinds of the contenders in line, in order: "WRR".
func readers(s *locktest.Sim, dir string) string {
	synctest.Wait()
	var line strings.Builder
	for _, name := range locktest.Contenders(s.Server.Children(dir)) {
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
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				m := c.RWMutex(dir, zklock.WithReentrancy())
				first := s.Take(m.Lock)
				second := s.Take(under(first, m.Lock))
				require.Equal(s, first.Token(), second.Token())
				require.Equal(s, first.Node(), second.Node())
				require.Len(s, s.Server.Children(dir), 1)
				_, err := m.Downgrade(s.Context(), first)
				require.ErrorContains(s, err, "held 2 times")
				require.NoError(s, first.Err(), "a downgrade that is refused changes nothing")
				waiter := s.Start(s.Client().RWMutex(dir).RLock)
				if !outerFirst {
					first, second = second, first
				}
				s.Unlock(first)
				require.NoError(s, second.Err())
				require.ErrorIs(s, first.Unlock(s.Context()), zklock.ErrNotHeld)
				require.False(s, waiter.Over())
				r, err := m.Downgrade(s.Context(), second)
				require.NoError(s, err, "the last one can be downgraded")
				s.Unlock(waiter.Get(s))
				s.Unlock(r)
				s.NothingLeft(dir)
			})
		})
	}
}

// A read lock under the caller's own write lock costs nothing, and remains a read lock after the write lock's Unlock: other
// readers can enter, writers cannot.
func TestAReadUnderTheWriteLockSurvivesItsUnlockAsARead(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		m := c.RWMutex(dir, zklock.WithReentrancy())
		w := s.Take(m.Lock)
		asked := s.Server.Requests()
		r := s.Take(under(w, m.RLock))
		again := s.Take(under(r, m.TryRLock))
		deeper := s.Take(under(r, m.Lock)) // the write lock is still held: this is a write under a write
		s.Unlock(deeper)
		require.Equal(s, asked, s.Server.Requests(), "nothing was asked")
		writer, reader := s.Start(s.Client().RWMutex(dir).Lock), s.Start(s.Client().RWMutex(dir).RLock)
		require.Equal(s, "WWR", readers(s, dir))

		s.Unlock(w)
		require.ErrorIs(s, context.Cause(w.Context()), zklock.ErrUnlocked)
		require.Equal(s, "RWR", readers(s, dir))
		for _, h := range []*zklock.Hold{r, again} {
			s.Owned(c, h)
			require.NoError(s, h.Check(s.Context()))
		}
		early := s.Take(under(r, m.RLock))
		_, err := m.Lock(r.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock, "there is only a read lock left")
		time.Sleep(locktest.LongTime)
		require.NoError(s, r.Err(), "that the writer's znode went is no loss")
		require.False(s, writer.Over())
		require.False(s, reader.Over(), "it came behind the writer")

		s.Unlock(r)
		s.Unlock(early)
		require.False(s, writer.Over(), "one read is left")
		s.Unlock(again)
		s.Unlock(writer.Get(s))
		s.Unlock(reader.Get(s))
		s.NothingLeft(dir)
	})
}

// A read lock under the write lock that is released before the write lock leaves the write lock as it was.
func TestAReadUnderTheWriteLockThatEndsFirstLeavesTheWriteLock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		m := c.RWMutex(dir, zklock.WithReentrancy())
		w := s.Take(m.Lock)
		s.Unlock(s.Take(under(w, m.RLock)))
		require.Equal(s, "W", readers(s, dir))
		s.Owned(c, w)
		s.Unlock(w)
		s.NothingLeft(dir)
	})
}

// A read lock under a read lock counts up with reentrancy, past a writer that waits; without, it is refused, since
// waiting behind that writer would never end.
func TestAReadUnderAReadPassesAWriterThatWaitsOnlyWithReentrancy(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		m := c.RWMutex(dir, zklock.WithReentrancy())
		r := s.Take(m.RLock)
		writer := s.Start(s.Client().RWMutex(dir).Lock)
		second := s.Take(under(r, m.RLock))
		_, err := c.RWMutex(dir).RLock(r.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		_, err = m.TryRLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy, "a context that does not come from the hold has to wait")
		s.Unlock(r)
		require.False(s, writer.Over())
		s.Owned(c, second)
		s.Unlock(second)
		s.Unlock(writer.Get(s))
		s.NothingLeft(dir)
	})
}

// Without reentrancy every lock under a hold of the same lock is refused at once.
func TestWithoutReentrancyALockUnderAHoldIsADeadlock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		m := c.RWMutex(dir)
		for _, outer := range []locktest.Acquire{m.Lock, m.RLock} {
			h := s.Take(outer)
			for _, inner := range []locktest.Acquire{m.Lock, m.RLock, m.TryLock, m.TryRLock} {
				_, err := inner(h.Context())
				require.ErrorIs(s, err, zklock.ErrDeadlock)
			}
			s.Unlock(h)
		}
		s.NothingLeft(dir)
	})
}

// A Lock under a hold that is being downgraded does not become a writer beside other readers.
func TestALockUnderAHoldThatIsBeingDowngradedIsADeadlock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a := s.Dir("/locks/a"), s.Client()
		m := a.RWMutex(dir, zklock.WithReentrancy())
		w := s.Take(m.Lock)
		in := s.Server.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.SessionID()).Once())
		call := locktest.Go(s.Context(), downgrade(m, w))
		<-in.Hit()
		_, err := m.Lock(w.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		read := s.Take(under(w, m.RLock))
		in.Release()
		r := call.Get(s)
		s.Owned(a, r)
		s.Unlock(r)
		s.Owned(a, read)
		s.Unlock(read)
		s.NothingLeft(dir)
	})
}

// The write lock and a read lock under it are released at the same time: no znode is left.
func TestAWriteAndAReadUnderItThatAreReleasedTogetherLeaveNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a := s.Dir("/locks/a"), s.Client()
		m := a.RWMutex(dir, zklock.WithReentrancy())
		w := s.Take(m.Lock)
		r := s.Take(under(w, m.RLock))
		writer := s.Start(s.Client().RWMutex(dir).Lock)
		in := s.Server.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.SessionID()).Once())
		write := locktest.Go(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return nil, w.Unlock(ctx) })
		<-in.Hit()
		read := locktest.Go(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return nil, r.Unlock(ctx) })
		synctest.Wait()
		in.Release()
		require.True(s, write.Over())
		require.True(s, read.Over())
		s.Until(5*time.Second, "the writer comes in", writer.Over)
		require.NoError(s, write.Err)
		require.NoError(s, read.Err)
		s.Unlock(writer.Get(s))
		s.NothingLeft(dir)
	})
}

// The write lock is released with a context that has ended, while a read lock under it goes on. It still becomes a read
// lock, in the background, and the read hold goes on.
func TestAWriteReleasedWithAContextThatIsOverBecomesAReadInTheBackground(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(map[bool]string{false: "over before", true: "over meanwhile"}[late], func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a := s.Dir("/locks/a"), s.Client()
				m := a.RWMutex(dir, zklock.WithReentrancy())
				w := s.Take(m.Lock)
				r := s.Take(under(w, m.RLock))
				reader := s.Start(s.Client().RWMutex(dir).RLock)
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				var in *zktest.Injection
				if late {
					in = s.Server.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.SessionID()).Once())
				} else {
					cancel()
				}
				unlock := locktest.Go(ctx, func(ctx context.Context) (*zklock.Hold, error) { return nil, w.Unlock(ctx) })
				if late {
					<-in.Hit()
					cancel()
					require.True(s, unlock.Over(), "it does not outlive its context")
					in.Release()
				}
				require.True(s, unlock.Over())
				require.ErrorIs(s, unlock.Err, context.Canceled)
				s.Until(5*time.Second, "the reader comes in", reader.Over)
				require.NoError(s, r.Err(), "whose owner has not released it")
				s.Owned(a, r)
				s.Unlock(r)
				s.Unlock(reader.Get(s))
				s.NothingLeft(dir)
			})
		})
	}
}
