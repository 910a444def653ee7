package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Options of a read/write lock, and what its holds can do.

// WithWait bounds reads and writes alike.
func TestAWaitForAReadOrAWriteIsBounded(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		w := rwTake(s, s.client().RWMutex(dir, zklock.WithOwner("nightly")).Lock)
		m := s.client().RWMutex(dir, zklock.WithWait(time.Minute))
		for _, call := range []rwCall{m.RLock, m.Lock} {
			began := time.Now()
			_, err := call(s.Context())
			require.ErrorIs(s, err, zklock.ErrBusy)
			require.NotErrorIs(s, err, context.DeadlineExceeded)
			require.ErrorContains(s, err, "2nd in line behind nightly")
			require.Equal(s, time.Minute, time.Since(began))
		}
		s.unlock(w)
		rwNothingLeft(s, dir)
	})
}

// WithMaxHold ends a hold by itself, of either lock; time spent as a writer counts for what it was downgraded to.
func TestAReadOrAWriteThatIsHeldForTooLongEnds(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		m := s.client().RWMutex(dir, zklock.WithMaxHold(time.Minute))
		w := rwTake(s, m.Lock)
		began := time.Now()
		r := rwAside(s, m.RLock).get
		reader := r(s)
		require.Equal(s, time.Minute, time.Since(began))
		require.ErrorIs(s, w.Err(), zklock.ErrMaxHold)
		began = time.Now()
		w = rwAside(s, m.Lock).get(s)
		require.Equal(s, time.Minute, time.Since(began))
		require.ErrorIs(s, reader.Err(), zklock.ErrMaxHold)

		time.Sleep(40 * time.Second)
		kept, err := m.Downgrade(s.Context(), w)
		require.NoError(s, err)
		began = time.Now()
		<-kept.Context().Done()
		require.Equal(s, 20*time.Second, time.Since(began), "what was left")
		require.ErrorIs(s, kept.Err(), zklock.ErrMaxHold)
		rwNothingLeft(s, dir)
	})
}

// WithMaxHold is over while the lock is being downgraded: nothing is left of either.
func TestAMaximumThatIsOverDuringADowngradeLeavesNothing(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a := s.dir("/locks/a"), s.client()
		m := a.RWMutex(dir, zklock.WithMaxHold(time.Second))
		w := rwTake(s, m.Lock)
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.id()).Once())
		call := simGo(s.Context(), rwDowngrade(m, w))
		<-in.Hit()
		time.Sleep(1500 * time.Millisecond)
		in.Release()
		require.True(s, call.over())
		require.ErrorIs(s, w.Err(), zklock.ErrMaxHold)
		if call.err == nil {
			require.ErrorIs(s, call.hold.Err(), zklock.ErrMaxHold)
		}
		rwNothingLeft(s, dir)
	})
}

// WithLockDelay counts for readers and writers, after a loss and not after a release; a claim goes over from a writer
// to the reader that it is downgraded to.
func TestALockDelayCountsForReadersAndWriters(t *testing.T) {
	for _, how := range []string{"a writer", "a reader", "a writer that was downgraded"} {
		for _, lost := range []bool{true, false} {
			t.Run(how+map[bool]string{true: " is lost", false: " releases"}[lost], func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir := s.dir("/locks/a")
					delay := zklock.WithLockDelay(time.Minute)
					m := s.client().RWMutex(dir, delay)
					var h *zklock.Hold
					switch how {
					case "a reader":
						h = rwTake(s, m.RLock)
					default:
						h = rwTake(s, m.Lock)
					}
					if how == "a writer that was downgraded" {
						r, err := m.Downgrade(s.Context(), h)
						require.NoError(s, err)
						h = r
					}
					other := s.client().RWMutex(dir, delay)
					next := rwAside(s, other.Lock)
					at := time.Now()
					if lost {
						require.NoError(s, s.srv.Delete(h.Node()))
					} else {
						s.unlock(h)
					}
					w := next.get(s)
					require.Equal(s, map[bool]time.Duration{true: time.Minute, false: 0}[lost], time.Since(at))
					s.unlock(w)
					n, _ := s.srv.Node(dir)
					require.Empty(s, n.Data, "no claim is left")
					rwNothingLeft(s, dir)
				})
			})
		}
	}
}

// WithContainer: the directory goes when nobody stands in it, and tokens grow across its lives.
func TestAReadWriteLocksContainerGoesAndComesBack(t *testing.T) {
	simTest(t, func(s *sim) {
		s.dir("/locks")
		c := s.client()
		m := c.RWMutex("/locks/key", zklock.WithContainer())
		var last zklock.Token
		for i := range 4 {
			call := m.Lock
			if i%2 == 1 {
				call = m.RLock
			}
			h := rwTake(s, call)
			require.Greater(s, h.Token(), last)
			last = h.Token()
			s.unlock(h)
			s.until(5*time.Minute, "the container has gone", func() bool {
				_, ok := s.srv.Node("/locks/key")
				return !ok
			})
		}
	})
}

// Do holds the write lock while fn runs, RDo the read lock; both give it back whatever becomes of fn.
func TestDoAndRDoHoldTheirLocks(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		m, other := s.client().RWMutex(dir), s.client().RWMutex(dir)
		boom := errors.New("boom")
		tries := func() (write, read error) {
			h, write := other.TryLock(s.Context())
			if write == nil {
				s.unlock(h)
			}
			h, read = other.TryRLock(s.Context())
			if read == nil {
				s.unlock(h)
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
			require.Empty(s, s.srv.Children(dir))
			require.ErrorIs(s, do(s.Context(), func(ctx context.Context) error {
				require.NoError(s, s.srv.DeleteAll(dir))
				time.Sleep(time.Second)
				require.ErrorIs(s, context.Cause(ctx), zklock.ErrNodeDeleted)
				return nil
			}), zklock.ErrLost)
		}
		rwNothingLeft(s, dir)
	})
}

// Holds of either lock check and fence; tokens grow from writer to writer, whatever readers came between.
func TestHoldsOfAReadWriteLockCheckAndFence(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, data, a, b := s.dir("/locks/a"), s.dir("/data"), s.client(), s.client()
		m := a.RWMutex(dir)
		write := func(h *zklock.Hold) error {
			_, err := h.Multi(s.Context(), &zk.CreateRequest{Path: data + "/x", Acl: session.WorldACL(), Flags: zk.FlagSequence})
			return err
		}
		var last zklock.Token
		for i := range 6 {
			h := rwTake(s, m.Lock)
			require.Greater(s, h.Token(), last)
			last = h.Token()
			s.owned(a, h)
			require.NoError(s, h.Check(s.Context()))
			require.NoError(s, write(h))
			next := rwAside(s, b.RWMutex(dir).Lock) // it has its place, and its token, before the downgrade
			if i%2 == 0 {
				r, err := m.Downgrade(s.Context(), h)
				require.NoError(s, err)
				require.Error(s, write(h), "what was downgraded is no hold any more")
				require.Error(s, h.Check(s.Context()))
				require.NoError(s, r.Check(s.Context()))
				require.NoError(s, write(r))
				h = r
			}
			s.unlock(h)
			w := next.get(s)
			require.Greater(s, w.Token(), last)
			last = w.Token()
			require.NoError(s, s.srv.Delete(w.Node()))
			require.ErrorIs(s, write(w), zklock.ErrLost)
			synctest.Wait()
			s.until(time.Second, "its watches have gone", func() bool { return s.srv.WatchCount() == 0 })
		}
		rwNothingLeft(s, dir)
	})
}
