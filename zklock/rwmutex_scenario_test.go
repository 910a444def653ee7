package zklock_test

import (
	"context"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

// Readers and writers: scenarios 29 to 32, and the order of arrival.

// rwCall is a lock call of an RWMutex's as the helpers take it.
type rwCall = func(context.Context) (*zklock.Hold, error)

// rwTake takes a lock that must be free for the caller.
func rwTake(s *sim, call rwCall) *zklock.Hold {
	s.Helper()
	h, err := call(s.Context())
	require.NoError(s, err)
	return h
}

// rwAside starts a call and returns when it has its place in line.
func rwAside(s *sim, call rwCall) *simCall {
	c := simGo(s.Context(), call)
	synctest.Wait()
	return c
}

// rwNothingLeft demands that the line is empty and no watch stands, at once or after what still goes on.
func rwNothingLeft(s *sim, dir string) {
	s.Helper()
	s.empty(10*time.Second, dir)
	s.until(10*time.Second, "no watch left", func() bool { return s.srv.WatchCount() == 0 })
}

// scenario 29: a writer downgrades while another writer is queued: the reader keeps its place, the writer waits; and
// readers behind that writer wait for it.
func TestScenario29_AWriterThatDowngradesKeepsItsPlaceBeforeAQueuedWriter(t *testing.T) {
	for _, settled := range []time.Duration{0, time.Second} {
		t.Run(settled.String(), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a, b, c := s.dir("/locks/a"), s.client(), s.client(), s.client()
				m := a.RWMutex(dir)
				w := rwTake(s, m.Lock)
				second := rwAside(s, b.RWMutex(dir).Lock)
				third := rwAside(s, c.RWMutex(dir).RLock)
				time.Sleep(settled)

				written := w.Token()
				r, err := m.Downgrade(s.Context(), w)
				require.NoError(s, err)
				require.Equal(s, written, r.Token(), "the reader is the writer that was")
				s.owned(a, r)
				require.ErrorIs(s, context.Cause(w.Context()), zklock.ErrUnlocked)
				require.ErrorIs(s, w.Unlock(s.Context()), zklock.ErrNotHeld)
				line := contenders(s.srv.Children(dir))
				require.Len(s, line, 3)
				require.Equal(s, path.Base(r.Node()), line[0], "its place is kept")

				time.Sleep(time.Hour)
				require.False(s, second.over(), "the writer waits for the reader")
				require.False(s, third.over(), "a reader behind a waiting writer waits")
				require.NoError(s, r.Err())

				s.unlock(r)
				next := second.get(s)
				require.Greater(s, next.Token(), written, "tokens grow from writer to writer")
				require.False(s, third.over())
				s.unlock(next)
				s.unlock(third.get(s))
				rwNothingLeft(s, dir)
			})
		})
	}
}

// scenario 30: a reader with a later writer behind it: only writers with lower numbers block a reader.
func TestScenario30_OnlyLowerWritersBlockAReader(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b, c, d := s.dir("/locks/a"), s.client(), s.client(), s.client(), s.client()
		w := rwTake(s, a.RWMutex(dir).Lock)
		reader := rwAside(s, b.RWMutex(dir).RLock)
		writer := rwAside(s, c.RWMutex(dir).Lock)
		late := rwAside(s, d.RWMutex(dir).RLock)
		time.Sleep(time.Second)
		require.False(s, reader.over())

		s.unlock(w)
		r := reader.get(s)
		require.False(s, writer.over(), "the later writer waits for the reader")
		require.False(s, late.over(), "and the reader behind it for the writer")
		time.Sleep(time.Hour)
		require.NoError(s, r.Err())
		require.False(s, writer.over())
		require.False(s, late.over())

		s.unlock(r)
		s.unlock(writer.get(s))
		s.unlock(late.get(s))
		rwNothingLeft(s, dir)
	})
}

// scenario 31: a reader's znode vanishes: one that holds has lost its hold, one that waits queues again, and a writer
// that waited for it gets its turn. Nothing crashes.
func TestScenario31_AReadersNodeVanishes(t *testing.T) {
	t.Run("of one that holds", func(t *testing.T) {
		simTest(t, func(s *sim) {
			dir, a, b, c := s.dir("/locks/a"), s.client(), s.client(), s.client()
			m := a.RWMutex(dir)
			gone, stays := rwTake(s, m.RLock), rwTake(s, b.RWMutex(dir).RLock)
			writer := rwAside(s, c.RWMutex(dir).Lock)
			time.Sleep(time.Second)
			require.NoError(s, s.srv.Delete(gone.Node()))
			synctest.Wait()
			require.ErrorIs(s, context.Cause(gone.Context()), zklock.ErrNodeDeleted)
			require.ErrorIs(s, gone.Err(), zklock.ErrLost)
			require.NoError(s, stays.Err(), "the other reader is not concerned")
			require.ErrorIs(s, gone.Unlock(s.Context()), zklock.ErrNodeDeleted)
			require.False(s, writer.over())
			s.unlock(stays)
			s.unlock(writer.get(s))
			s.unlock(rwTake(s, m.RLock)) // the client goes on
			rwNothingLeft(s, dir)
		})
	})
	t.Run("of one that waits", func(t *testing.T) {
		simTest(t, func(s *sim) {
			dir, a, b := s.dir("/locks/a"), s.client(), s.client()
			w := rwTake(s, a.RWMutex(dir).Lock)
			reader := rwAside(s, b.RWMutex(dir).RLock)
			time.Sleep(time.Second)
			line := contenders(s.srv.Children(dir))
			require.NoError(s, s.srv.Delete(dir+"/"+line[1]))
			require.False(s, reader.over())
			again := contenders(s.srv.Children(dir))
			require.Len(s, again, 2, "it has taken another place")
			require.NotEqual(s, line[1], again[1])
			s.unlock(w)
			r := reader.get(s)
			s.owned(b, r)
			s.unlock(r)
			rwNothingLeft(s, dir)
		})
	})
	t.Run("with its session", func(t *testing.T) {
		simTest(t, func(s *sim) {
			dir, a, b := s.dir("/locks/a"), s.client(), s.client()
			r := rwTake(s, a.RWMutex(dir).RLock)
			writer := rwAside(s, b.RWMutex(dir).Lock)
			require.NoError(s, s.srv.Expire(a.id()))
			<-r.Context().Done()
			require.ErrorIs(s, r.Err(), zklock.ErrSessionExpired)
			s.unlock(writer.get(s))
			rwNothingLeft(s, dir)
		})
	})
}

// scenario 32: a reader asks for the write lock under its own read lock: an error, and no place in line.
func TestScenario32_AReaderThatAsksForTheWriteLockGetsAnError(t *testing.T) {
	for name, opts := range map[string][]zklock.LockOption{
		"without reentrancy": nil,
		"with reentrancy":    {zklock.WithReentrancy()},
		"that does not wait": {zklock.WithWait(0)},
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, c := s.dir("/locks/a"), s.client()
				m := c.RWMutex(dir, opts...)
				r := rwTake(s, m.RLock)
				began, creates := time.Now(), s.srv.Requests()
				for _, call := range []rwCall{m.Lock, m.TryLock, c.RWMutex(dir, zklock.WithReentrancy()).Lock} {
					_, err := call(r.Context())
					require.ErrorIs(s, err, zklock.ErrDeadlock)
					require.ErrorContains(s, err, dir)
				}
				require.ErrorIs(s, m.Do(r.Context(), func(context.Context) error { return nil }), zklock.ErrDeadlock)
				require.Equal(s, began, time.Now(), "no wait")
				require.Equal(s, creates, s.srv.Requests(), "and nothing asked")
				s.owned(c, r)
				s.unlock(r)
				s.unlock(rwTake(s, m.Lock))
				rwNothingLeft(s, dir)
			})
		})
	}
}

// The order is that of arrival, for readers and writers alike: a reader never overtakes a writer that waits.
func TestReadersAndWritersComeInInTheOrderOfArrival(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		const line = "WRRWWRRRWR" // what the contenders want, in the order in which they come
		calls := make([]*simCall, len(line))
		for i, want := range line {
			m := s.client().RWMutex(dir)
			if want == 'R' {
				calls[i] = rwAside(s, m.RLock)
			} else {
				calls[i] = rwAside(s, m.Lock)
			}
		}
		for first := 0; first < len(line); {
			last := first + 1 // of those that hold now: a writer, or all readers up to the next one
			for line[first] == 'R' && last < len(line) && line[last] == 'R' {
				last++
			}
			time.Sleep(time.Minute)
			for i, call := range calls[first:] {
				require.Equal(s, first+i < last, call.over(), "contender %d while %d to %d should hold", first+i, first, last-1)
			}
			for i := last - 1; i >= first; i-- { // whichever order they release in, only the last lets the writer in
				if last < len(line) {
					require.False(s, calls[last].over())
				}
				s.unlock(calls[i].get(s))
			}
			first = last
		}
		rwNothingLeft(s, dir)
	})
}
