package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Downgrade when something goes wrong.

// rwDowngrade is Downgrade as the helpers take a call.
func rwDowngrade(m *zklock.RWMutex, h *zklock.Hold) rwCall {
	return func(ctx context.Context) (*zklock.Hold, error) { return m.Downgrade(ctx, h) }
}

// The reply to a downgrade is lost: whether it was carried out or not, the lock ends up held as a reader, once.
func TestADowngradeWhoseReplyIsLostIsHeldAsAReader(t *testing.T) {
	for name, f := range map[string]zktest.Fault{
		"after it was carried out": zktest.CloseAfter(), "before it was carried out": zktest.CloseBefore(),
	} {
		for _, opts := range [][]zklock.LockOption{nil, {zklock.WithLockDelay(time.Minute)}} {
			t.Run(name+map[bool]string{true: ", with a delay"}[opts != nil], func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, a, b := s.dir("/locks/a"), s.client(), s.client()
					m := a.RWMutex(dir, opts...)
					w := rwTake(s, m.Lock)
					time.Sleep(time.Second)
					written := w.Token()
					writer, reader := rwAside(s, b.RWMutex(dir, opts...).Lock), rwAside(s, s.client().RWMutex(dir, opts...).RLock)
					in := s.srv.Inject(f.Op(zktest.OpMulti).Session(a.id()).Once())
					r, err := m.Downgrade(s.Context(), w)
					require.NoError(s, err)
					require.Equal(s, 1, in.Hits())
					s.owned(a, r)
					require.Equal(s, written, r.Token())
					require.Len(s, s.srv.Children(dir), 3, "one place for each")
					time.Sleep(time.Minute)
					require.NoError(s, r.Err(), "that the writer's znode went is no loss")
					require.False(s, writer.over())
					require.False(s, reader.over())
					began := time.Now()
					s.unlock(r)
					s.unlock(writer.get(s))
					s.unlock(reader.get(s))
					require.Less(s, time.Since(began), time.Minute, "a release is no loss: nobody waits out the delay")
					rwNothingLeft(s, dir)
				})
			})
		}
	}
}

// The downgrade's context ends while its outcome is unknown: the lock is given up, and nothing is left, whatever
// became of the request.
func TestADowngradeThatIsGivenUpLeavesNothing(t *testing.T) {
	for name, f := range map[string]zktest.Fault{
		"carried out, the reply is late":     zktest.HoldReply(),
		"carried out when nobody waits":      zktest.Hold(),
		"never carried out":                  zktest.DropRequest(),
		"carried out, and the reply is lost": zktest.DropReply(),
	} {
		for _, opts := range [][]zklock.LockOption{nil, {zklock.WithLockDelay(time.Minute)}} {
			t.Run(name+map[bool]string{true: ", with a delay"}[opts != nil], func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, a, b := s.dir("/locks/a"), s.client(), s.client()
					m := a.RWMutex(dir, opts...)
					w := rwTake(s, m.Lock)
					writer := rwAside(s, b.RWMutex(dir, opts...).Lock)
					in := s.srv.Inject(f.Op(zktest.OpMulti).Session(a.id()).Once())
					ctx, cancel := context.WithCancel(s.Context())
					defer cancel()
					call := simGo(ctx, rwDowngrade(m, w))
					<-in.Hit()
					synctest.Wait()
					cancel()
					require.True(s, call.over(), "it does not outlive its context")
					require.ErrorIs(s, call.err, context.Canceled)
					require.ErrorIs(s, call.err, zklock.ErrUnknownOutcome)
					require.Error(s, w.Err(), "the lock is given up")
					require.ErrorIs(s, w.Unlock(s.Context()), zklock.ErrNotHeld)
					time.Sleep(time.Second)
					in.Remove()
					s.unlock(writer.get(s))
					s.unlock(rwTake(s, m.Lock))
					rwNothingLeft(s, dir)
				})
			})
		}
	}
}

// A downgrade that could not even be asked for leaves the write lock as it was.
func TestADowngradeThatWasNotSentLeavesTheWriteLock(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		m := a.RWMutex(dir)
		w := rwTake(s, m.Lock)
		reader := rwAside(s, b.RWMutex(dir).RLock)
		over, cancel := context.WithCancel(s.Context())
		cancel()
		_, err := m.Downgrade(over, w)
		require.ErrorIs(s, err, context.Canceled)
		s.owned(a, w)

		s.srv.Leader().Down()
		ctx, end := context.WithTimeout(s.Context(), time.Second)
		defer end()
		synctest.Wait()
		_, err = m.Downgrade(ctx, w)
		require.ErrorIs(s, err, context.DeadlineExceeded)
		s.srv.Leader().Up()
		time.Sleep(5 * time.Second)
		if w.Err() == nil { // what was not sent
			require.False(s, reader.over())
			r, err := m.Downgrade(s.Context(), w)
			require.NoError(s, err)
			s.unlock(reader.get(s))
			s.unlock(r)
		}
		s.unlock(rwTake(s, m.Lock))
		s.until(time.Minute, "the reader came in", reader.over)
		if reader.hold.Err() == nil {
			s.unlock(reader.hold)
		}
		rwNothingLeft(s, dir)
	})
}

// An administrator deletes the writer's znode while it downgrades: the lock is lost, and no reader's znode is left.
func TestADowngradeWhoseZnodeAnAdministratorDeletesIsALoss(t *testing.T) {
	for _, settled := range []time.Duration{0, time.Second} {
		t.Run(settled.String(), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a, b := s.dir("/locks/a"), s.client(), s.client()
				m := a.RWMutex(dir)
				w := rwTake(s, m.Lock)
				writer := rwAside(s, b.RWMutex(dir).Lock)
				time.Sleep(settled)
				in := s.srv.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.id()).Once())
				call := simGo(s.Context(), rwDowngrade(m, w))
				<-in.Hit()
				require.NoError(s, s.srv.Delete(w.Node()))
				synctest.Wait()
				in.Release()
				require.True(s, call.over())
				require.ErrorIs(s, call.err, zklock.ErrNodeDeleted)
				require.ErrorIs(s, w.Err(), zklock.ErrNodeDeleted)
				require.ErrorIs(s, w.Unlock(s.Context()), zklock.ErrLost)
				s.unlock(writer.get(s))
				rwNothingLeft(s, dir)
			})
		})
	}
}

// The znode that a downgrade made is deleted by an administrator: a loss like any other.
func TestAReaderThatCameFromADowngradeHearsOfItsLoss(t *testing.T) {
	for _, settled := range []time.Duration{0, time.Second} {
		t.Run(settled.String(), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, c := s.dir("/locks/a"), s.client()
				m := c.RWMutex(dir)
				r, err := m.Downgrade(s.Context(), rwTake(s, m.Lock))
				require.NoError(s, err)
				time.Sleep(settled)
				require.NoError(s, r.Check(s.Context()))
				require.NoError(s, s.srv.Delete(r.Node()))
				time.Sleep(time.Second)
				require.ErrorIs(s, r.Err(), zklock.ErrNodeDeleted)
				rwNothingLeft(s, dir)
			})
		})
	}
}

// An administrator deletes the writer's znode during a downgrade that then fails for another reason: the loss is not
// forgotten.
func TestALossDuringADowngradeThatFailsIsNotForgotten(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a := s.dir("/locks/a"), s.client()
		m := a.RWMutex(dir, zklock.WithLockDelay(time.Second))
		w := rwTake(s, m.Lock)
		time.Sleep(time.Second)                                                       // the own znode is watched now
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpGetData).Session(a.id()).Once()) // before anything is written
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		call := simGo(ctx, rwDowngrade(m, w))
		<-in.Hit()
		require.NoError(s, s.srv.Delete(w.Node()))
		synctest.Wait() // the word of it has arrived
		cancel()
		require.True(s, call.over())
		require.ErrorIs(s, call.err, context.Canceled)
		in.Remove()
		synctest.Wait()
		require.ErrorIs(s, w.Err(), zklock.ErrNodeDeleted, "it believes that it holds")
	})
}

// The session ends while it downgrades.
func TestADowngradeWhoseSessionEndsIsALoss(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		m := a.RWMutex(dir)
		w := rwTake(s, m.Lock)
		writer := rwAside(s, b.RWMutex(dir).Lock)
		id := a.id()
		s.srv.Inject(zktest.ExpireSession().Op(zktest.OpMulti).Session(id).Once())
		_, err := m.Downgrade(s.Context(), w)
		require.ErrorIs(s, err, zklock.ErrLost)
		require.ErrorIs(s, w.Err(), zklock.ErrSessionExpired)
		s.unlock(writer.get(s))
		rwNothingLeft(s, dir)
	})
}

// What is not a hold of this write lock can't be downgraded, and stays what it is.
func TestOnlyALiveHoldOfThisWriteLockCanBeDowngraded(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		m := a.RWMutex(dir)
		refused := func(h *zklock.Hold, by *zklock.RWMutex, why string) {
			s.Helper()
			r, err := by.Downgrade(s.Context(), h)
			require.Nil(s, r)
			require.ErrorIs(s, err, zklock.ErrNotHeld, why)
			require.ErrorContains(s, err, "zklock: downgrade")
		}
		read := rwTake(s, m.RLock)
		refused(read, m, "of the read lock")
		s.owned(a, read)
		s.unlock(read)
		refused(read, m, "of the read lock, released")

		w := rwTake(s, m.Lock)
		refused(w, b.RWMutex(dir), "another client's")
		refused(w, a.RWMutex(s.dir("/locks/b")), "of another lock")
		s.owned(a, w)
		s.unlock(w)
		refused(w, m, "released")
		refused(nil, m, "none")

		mutex := s.lock(a.Mutex("/locks/b"))
		refused(mutex, a.RWMutex("/locks/b"), "of a mutex")
		s.owned(a, mutex)
		s.unlock(mutex)
		sem := semTake(s, a.Semaphore(s.dir("/locks/c"), 1), 1)
		refused(sem, a.RWMutex("/locks/c"), "of a semaphore")
		s.unlock(sem)

		w = rwTake(s, m.Lock)
		lost := w
		require.NoError(s, s.srv.Delete(w.Node()))
		_, err := m.Downgrade(s.Context(), lost)
		require.ErrorIs(s, err, zklock.ErrNodeDeleted)

		w = rwTake(s, m.Lock)
		r, err := m.Downgrade(s.Context(), w)
		require.NoError(s, err)
		refused(w, m, "downgraded before")
		refused(r, m, "what it was downgraded to")
		s.unlock(r)
		_, err = a.RWMutex("bad").Downgrade(s.Context(), r)
		require.ErrorIs(s, err, zklock.ErrPath)
		rwNothingLeft(s, dir)
	})
}

// The znode of a writer that was turned into a reader by a transaction whose reply was lost takes no more room, though nobody
// was told of its deletion.
func TestTheWriterOfADowngradeWhoseReplyWasLostTakesNoRoom(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		m := c.RWMutex(s.dir("/locks/a"))
		ses, err := c.Session(s.Context())
		require.NoError(s, err)
		w := rwTake(s, m.Lock)
		lost := s.srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Session(c.id()).Once())
		r, err := m.Downgrade(s.Context(), w)
		require.NoError(s, err)
		require.Equal(s, 1, lost.Hits())
		s.unlock(r)
		require.Zero(s, ses.EphemeralBytes())
	})
}

// The reply to a downgrade is lost, and a server that has not heard of it yet says that it was not made: the second
// attempt finds the first one's znode, which is our own.
func TestADowngradeThatFindsItsOwnZnodeHasSucceeded(t *testing.T) {
	for _, opts := range [][]zklock.LockOption{nil, {zklock.WithLockDelay(time.Minute)}} {
		for _, again := range []bool{false, true} {
			t.Run(map[bool]string{true: "with a delay"}[opts != nil]+map[bool]string{true: ", the second reply is lost too"}[again], func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, a, b := s.dir("/locks/a"), s.client(), s.client()
					m := a.RWMutex(dir, opts...)
					w := rwTake(s, m.Lock)
					writer, reader := rwAside(s, b.RWMutex(dir, opts...).Lock), rwAside(s, s.client().RWMutex(dir, opts...).RLock)
					times := 1
					if again {
						times = 2
					}
					s.srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Session(a.id()).Times(times))
					missed := s.srv.Inject(zktest.Answer(zktest.CodeNoNode).Op(zktest.OpExists).Session(a.id()).Path(dir + "/*__READ__*").Once())
					r, err := m.Downgrade(s.Context(), w)
					require.NoError(s, err)
					require.Equal(s, 1, missed.Hits())
					s.owned(a, r)
					require.Equal(s, w.Token(), r.Token())
					require.Equal(s, "RWR", rwReaders(s, dir))
					time.Sleep(time.Minute)
					require.NoError(s, r.Err())
					s.unlock(r)
					s.unlock(writer.get(s))
					s.unlock(reader.get(s))
					rwNothingLeft(s, dir)
				})
			})
		}
	}
}
