package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Tests of the options of a read/write lock, and of its holds.

// WithWait bounds reads and writes alike.
func TestAWaitForAReadOrAWriteIsBounded(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		w := s.Take(s.Client().RWMutex(dir, zklock.WithOwner("nightly")).Lock)
		m := s.Client().RWMutex(dir, zklock.WithWait(time.Minute))
		for _, call := range []locktest.Acquire{m.RLock, m.Lock} {
			began := time.Now()
			_, err := call(s.Context())
			require.ErrorIs(s, err, zklock.ErrBusy)
			require.NotErrorIs(s, err, context.DeadlineExceeded)
			require.ErrorContains(s, err, "2nd in line behind nightly")
			require.Equal(s, time.Minute, time.Since(began))
		}
		s.Unlock(w)
		s.NothingLeft(dir)
	})
}

// WithMaxHold ends holds of either lock; the time as a writer counts for the reader that it was downgraded to.
func TestAReadOrAWriteThatIsHeldForTooLongEnds(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		m := s.Client().RWMutex(dir, zklock.WithMaxHold(time.Minute))
		w := s.Take(m.Lock)
		began := time.Now()
		r := s.Start(m.RLock).Get
		reader := r(s)
		require.Equal(s, time.Minute, time.Since(began))
		require.ErrorIs(s, w.Err(), zklock.ErrMaxHold)
		began = time.Now()
		w = s.Start(m.Lock).Get(s)
		require.Equal(s, time.Minute, time.Since(began))
		require.ErrorIs(s, reader.Err(), zklock.ErrMaxHold)

		time.Sleep(40 * time.Second)
		kept, err := m.Downgrade(s.Context(), w)
		require.NoError(s, err)
		began = time.Now()
		<-kept.Context().Done()
		require.Equal(s, 20*time.Second, time.Since(began), "what was left")
		require.ErrorIs(s, kept.Err(), zklock.ErrMaxHold)
		s.NothingLeft(dir)
	})
}

// WithMaxHold expires while the lock is being downgraded: neither znode is left.
func TestAMaximumThatIsOverDuringADowngradeLeavesNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a := s.Dir("/locks/a"), s.Client()
		m := a.RWMutex(dir, zklock.WithMaxHold(time.Second))
		w := s.Take(m.Lock)
		in := s.Server.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.SessionID()).Once())
		call := locktest.Go(s.Context(), downgrade(m, w))
		<-in.Hit()
		time.Sleep(1500 * time.Millisecond)
		in.Release()
		require.True(s, call.Over())
		require.ErrorIs(s, w.Err(), zklock.ErrMaxHold)
		if call.Err == nil {
			require.ErrorIs(s, call.Hold.Err(), zklock.ErrMaxHold)
		}
		s.NothingLeft(dir)
	})
}

// WithLockDelay applies to readers and writers, after a loss and not after a release. A downgrade carries the note over from
// the writer to the reader.
func TestALockDelayCountsForReadersAndWriters(t *testing.T) {
	for _, how := range []string{"a writer", "a reader", "a writer that was downgraded"} {
		for _, lost := range []bool{true, false} {
			t.Run(how+map[bool]string{true: " is lost", false: " releases"}[lost], func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir := s.Dir("/locks/a")
					delay := zklock.WithLockDelay(time.Minute)
					m := s.Client().RWMutex(dir, delay)
					var h *zklock.Hold
					switch how {
					case "a reader":
						h = s.Take(m.RLock)
					default:
						h = s.Take(m.Lock)
					}
					if how == "a writer that was downgraded" {
						r, err := m.Downgrade(s.Context(), h)
						require.NoError(s, err)
						h = r
					}
					other := s.Client().RWMutex(dir, delay)
					next := s.Start(other.Lock)
					at := time.Now()
					if lost {
						require.NoError(s, s.Server.Delete(h.Node()))
					} else {
						s.Unlock(h)
					}
					w := next.Get(s)
					require.Equal(s, map[bool]time.Duration{true: time.Minute, false: 0}[lost], time.Since(at))
					s.Unlock(w)
					n, _ := s.Server.Node(dir)
					require.Empty(s, n.Data, "no claim is left")
					s.NothingLeft(dir)
				})
			})
		}
	}
}

// WithContainer: the directory is deleted when it is empty, and tokens grow across its lives.
func TestAReadWriteLocksContainerGoesAndComesBack(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/locks")
		c := s.Client()
		m := c.RWMutex("/locks/key", zklock.WithContainer())
		var last zklock.Token
		for i := range 4 {
			call := m.Lock
			if i%2 == 1 {
				call = m.RLock
			}
			h := s.Take(call)
			require.Greater(s, h.Token(), last)
			last = h.Token()
			s.Unlock(h)
			s.Until(5*time.Minute, "the container has gone", func() bool {
				_, ok := s.Server.Node("/locks/key")
				return !ok
			})
		}
	})
}

// Do holds the write lock while fn runs, RDo the read lock; both release it however fn ends.
func TestDoAndRDoHoldTheirLocks(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		m, other := s.Client().RWMutex(dir), s.Client().RWMutex(dir)
		boom := errors.New("boom")
		tries := func() (write, read error) {
			h, write := other.TryLock(s.Context())
			if write == nil {
				s.Unlock(h)
			}
			h, read = other.TryRLock(s.Context())
			if read == nil {
				s.Unlock(h)
			}
			return write, read
		}
		require.ErrorIs(s, m.Do(s.Context(), func(ctx context.Context) error {
			write, read := tries()
			require.ErrorIs(s, write, zklock.ErrBusy)
			require.ErrorIs(s, read, zklock.ErrBusy)
			_, err := m.RLock(ctx)
			require.ErrorIs(s, err, zklock.ErrDeadlock, "fn's context is the hold's")
			return boom
		}), boom)
		require.ErrorIs(s, m.RDo(s.Context(), func(context.Context) error {
			write, read := tries()
			require.ErrorIs(s, write, zklock.ErrBusy)
			require.NoError(s, read)
			return boom
		}), boom)
		for _, do := range []func(context.Context, func(context.Context) error) error{m.Do, m.RDo} {
			require.Panics(s, func() { _ = do(s.Context(), func(context.Context) error { panic("boom") }) })
			require.Empty(s, s.Server.Children(dir))
			require.ErrorIs(s, do(s.Context(), func(ctx context.Context) error {
				require.NoError(s, s.Server.DeleteAll(dir))
				time.Sleep(time.Second)
				require.ErrorIs(s, context.Cause(ctx), zklock.ErrNodeDeleted)
				return nil
			}), zklock.ErrLost)
		}
		s.NothingLeft(dir)
	})
}

// Check and Multi work for holds of either lock; tokens grow from writer to writer, whatever readers held in between.
func TestHoldsOfAReadWriteLockCheckAndFence(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, data, a, b := s.Dir("/locks/a"), s.Dir("/data"), s.Client(), s.Client()
		m := a.RWMutex(dir)
		write := func(h *zklock.Hold) error {
			_, err := h.Multi(s.Context(), &zk.CreateRequest{Path: data + "/x", Acl: session.WorldACL(), Flags: zk.FlagSequence})
			return err
		}
		var last zklock.Token
		for i := range 6 {
			h := s.Take(m.Lock)
			require.Greater(s, h.Token(), last)
			last = h.Token()
			s.Owned(a, h)
			require.NoError(s, h.Check(s.Context()))
			require.NoError(s, write(h))
			next := s.Start(b.RWMutex(dir).Lock) // it has its place, and its token, before the downgrade
			if i%2 == 0 {
				r, err := m.Downgrade(s.Context(), h)
				require.NoError(s, err)
				require.Error(s, write(h), "what was downgraded is no hold any more")
				require.Error(s, h.Check(s.Context()))
				require.NoError(s, r.Check(s.Context()))
				require.NoError(s, write(r))
				h = r
			}
			s.Unlock(h)
			w := next.Get(s)
			require.Greater(s, w.Token(), last)
			last = w.Token()
			require.NoError(s, s.Server.Delete(w.Node()))
			require.ErrorIs(s, write(w), zklock.ErrLost)
			synctest.Wait()
			s.Until(time.Second, "its watches have gone", func() bool { return s.Server.WatchCount() == 0 })
		}
		s.NothingLeft(dir)
	})
}
