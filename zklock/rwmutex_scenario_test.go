package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Readers and writers: scenarios 29 to 32, and the order of arrival.

// scenario 30: a reader with a later writer behind it: only writers with lower numbers block a reader.
func TestScenario30_OnlyLowerWritersBlockAReader(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b, c, d := s.Dir("/locks/a"), s.Client(), s.Client(), s.Client(), s.Client()
		w := s.Take(a.RWMutex(dir).Lock)
		reader := s.Start(b.RWMutex(dir).RLock)
		writer := s.Start(c.RWMutex(dir).Lock)
		late := s.Start(d.RWMutex(dir).RLock)
		time.Sleep(time.Second)
		require.False(s, reader.Over())

		s.Unlock(w)
		r := reader.Get(s)
		require.False(s, writer.Over(), "the later writer waits for the reader")
		require.False(s, late.Over(), "and the reader behind it for the writer")
		time.Sleep(locktest.LongTime)
		require.NoError(s, r.Err())
		require.False(s, writer.Over())
		require.False(s, late.Over())

		s.Unlock(r)
		s.Unlock(writer.Get(s))
		s.Unlock(late.Get(s))
		s.NothingLeft(dir)
	})
}

// scenario 31: the znode of a reader that holds vanishes. That hold is lost, another reader's is not, and the writer behind both
// waits for that one alone.
func TestScenario31_AReadersNodeVanishes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b, c := s.Dir("/locks/a"), s.Client(), s.Client(), s.Client()
		m := a.RWMutex(dir)
		gone, stays := s.Take(m.RLock), s.Take(b.RWMutex(dir).RLock)
		writer := s.Start(c.RWMutex(dir).Lock)
		time.Sleep(time.Second)
		require.NoError(s, s.Server.Delete(gone.Node()))
		synctest.Wait()
		require.ErrorIs(s, context.Cause(gone.Context()), zklock.ErrNodeDeleted)
		require.ErrorIs(s, gone.Err(), zklock.ErrLost)
		require.NoError(s, stays.Err(), "the other reader is not concerned")
		require.ErrorIs(s, gone.Unlock(), zklock.ErrNodeDeleted)
		require.False(s, writer.Over())
		s.Unlock(stays)
		s.Unlock(writer.Get(s))
		s.Unlock(s.Take(m.RLock)) // the client goes on
		s.NothingLeft(dir)
	})
}

// scenario 32: a reader asks for the write lock under its own read lock: an error, and no place in line.
func TestScenario32_AReaderThatAsksForTheWriteLockGetsAnError(t *testing.T) {
	for name, opts := range map[string][]zklock.LockOption{
		"without reentrancy": nil,
		"with reentrancy":    {zklock.WithReentrancy()},
		"that does not wait": {zklock.WithMaxWait(0)},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				m := c.RWMutex(dir, opts...)
				r := s.Take(m.RLock)
				began, creates := time.Now(), s.Server.Requests()
				for _, call := range []locktest.Acquire{m.Lock, m.TryLock, c.RWMutex(dir, zklock.WithReentrancy()).Lock} {
					_, _, err := call(r.Context())
					require.ErrorIs(s, err, zklock.ErrDeadlock)
					require.ErrorContains(s, err, dir)
				}
				require.ErrorIs(s, m.Do(r.Context(), func(context.Context) error { return nil }), zklock.ErrDeadlock)
				require.Equal(s, began, time.Now(), "no wait")
				require.Equal(s, creates, s.Server.Requests(), "and nothing asked")
				s.Owned(c, r)
				s.Unlock(r)
				s.Unlock(s.Take(m.Lock))
				s.NothingLeft(dir)
			})
		})
	}
}

// The order is that of arrival, for readers and writers alike: a reader never overtakes a writer that waits.
func TestReadersAndWritersComeInInTheOrderOfArrival(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		const line = "WRRWWRRRWR" // what the contenders want, in the order in which they come
		calls := make([]*locktest.Call, len(line))
		for i, want := range line {
			m := s.Client().RWMutex(dir)
			if want == 'R' {
				calls[i] = s.Start(m.RLock)
			} else {
				calls[i] = s.Start(m.Lock)
			}
		}
		for first := 0; first < len(line); {
			last := first + 1 // of those that hold now: a writer, or all readers up to the next one
			for line[first] == 'R' && last < len(line) && line[last] == 'R' {
				last++
			}
			time.Sleep(time.Minute)
			for i, call := range calls[first:] {
				require.Equal(s, first+i < last, call.Over(), "contender %d while %d to %d should hold", first+i, first, last-1)
			}
			for i := last - 1; i >= first; i-- { // in whichever order they release, only the last one lets the writer in
				if last < len(line) {
					require.False(s, calls[last].Over())
				}
				s.Unlock(calls[i].Get(s))
			}
			first = last
		}
		s.NothingLeft(dir)
	})
}
