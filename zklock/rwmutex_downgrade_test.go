package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Tests of faults during a Downgrade.

// downgrade is Downgrade in the form of a call for the helpers.
func downgrade(m *zklock.RWMutex, h *zklock.Hold) locktest.Acquire {
	return func(ctx context.Context) (*zklock.Hold, error) { return m.Downgrade(ctx, h) }
}

// The reply to a downgrade is lost. Whether it was carried out or not, the lock is held as one reader in the end.
func TestADowngradeWhoseReplyIsLostIsHeldAsAReader(t *testing.T) {
	for name, f := range map[string]zktest.Fault{
		"after it was carried out": zktest.CloseAfter(), "before it was carried out": zktest.CloseBefore(),
	} {
		for _, opts := range [][]zklock.LockOption{nil, {zklock.WithLockDelay(time.Minute)}} {
			t.Run(name+map[bool]string{true: ", with a delay"}[opts != nil], func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
					m := a.RWMutex(dir, opts...)
					w := s.Take(m.Lock)
					time.Sleep(time.Second)
					written := w.Token()
					writer, reader := s.Start(b.RWMutex(dir, opts...).Lock), s.Start(s.Client().RWMutex(dir, opts...).RLock)
					in := s.Server.Inject(f.Op(zktest.OpMulti).Session(a.SessionID()).Once())
					r, err := m.Downgrade(s.Context(), w)
					require.NoError(s, err)
					require.Equal(s, 1, in.Hits())
					s.Owned(a, r)
					require.Equal(s, written, r.Token())
					require.Len(s, s.Server.Children(dir), 3, "one place for each")
					time.Sleep(time.Minute)
					require.NoError(s, r.Err(), "that the writer's znode went is no loss")
					require.False(s, writer.Over())
					require.False(s, reader.Over())
					began := time.Now()
					s.Unlock(r)
					s.Unlock(writer.Get(s))
					s.Unlock(reader.Get(s))
					require.Less(s, time.Since(began), time.Minute, "a release is no loss: nobody waits out the delay")
					s.NothingLeft(dir)
				})
			})
		}
	}
}

// The downgrade's context ends while its outcome is unknown: the lock is released, and no znode is left, whether the request was
// carried out or not.
func TestADowngradeThatIsGivenUpLeavesNothing(t *testing.T) {
	for name, f := range map[string]zktest.Fault{
		"carried out, the reply is late":     zktest.HoldReply(),
		"carried out when nobody waits":      zktest.Hold(),
		"never carried out":                  zktest.DropRequest(),
		"carried out, and the reply is lost": zktest.DropReply(),
	} {
		for _, opts := range [][]zklock.LockOption{nil, {zklock.WithLockDelay(time.Minute)}} {
			t.Run(name+map[bool]string{true: ", with a delay"}[opts != nil], func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
					m := a.RWMutex(dir, opts...)
					w := s.Take(m.Lock)
					writer := s.Start(b.RWMutex(dir, opts...).Lock)
					in := s.Server.Inject(f.Op(zktest.OpMulti).Session(a.SessionID()).Once())
					ctx, cancel := context.WithCancel(s.Context())
					defer cancel()
					call := locktest.Go(ctx, downgrade(m, w))
					<-in.Hit()
					synctest.Wait()
					cancel()
					require.True(s, call.Over(), "it does not outlive its context")
					require.ErrorIs(s, call.Err, context.Canceled)
					require.ErrorIs(s, call.Err, zklock.ErrUnknownOutcome)
					require.Error(s, w.Err(), "the lock is given up")
					require.ErrorIs(s, w.Unlock(s.Context()), zklock.ErrNotHeld)
					time.Sleep(time.Second)
					in.Remove()
					s.Unlock(writer.Get(s))
					s.Unlock(s.Take(m.Lock))
					s.NothingLeft(dir)
				})
			})
		}
	}
}

// A downgrade whose request was never sent leaves the write lock as it was.
func TestADowngradeThatWasNotSentLeavesTheWriteLock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		m := a.RWMutex(dir)
		w := s.Take(m.Lock)
		reader := s.Start(b.RWMutex(dir).RLock)
		over, cancel := context.WithCancel(s.Context())
		cancel()
		_, err := m.Downgrade(over, w)
		require.ErrorIs(s, err, context.Canceled)
		s.Owned(a, w)

		s.Server.Leader().Down()
		ctx, end := context.WithTimeout(s.Context(), time.Second)
		defer end()
		synctest.Wait()
		_, err = m.Downgrade(ctx, w)
		require.ErrorIs(s, err, context.DeadlineExceeded)
		s.Server.Leader().Up()
		time.Sleep(5 * time.Second)
		if w.Err() == nil { // what was not sent
			require.False(s, reader.Over())
			r, err := m.Downgrade(s.Context(), w)
			require.NoError(s, err)
			s.Unlock(reader.Get(s))
			s.Unlock(r)
		}
		s.Unlock(s.Take(m.Lock))
		s.Until(time.Minute, "the reader came in", reader.Over)
		if reader.Hold.Err() == nil {
			s.Unlock(reader.Hold)
		}
		s.NothingLeft(dir)
	})
}

// An administrator deletes the writer's znode while it downgrades: the lock is lost, and no reader's znode is left.
func TestADowngradeWhoseZnodeAnAdministratorDeletesIsALoss(t *testing.T) {
	for _, settled := range []time.Duration{0, time.Second} {
		t.Run(settled.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
				m := a.RWMutex(dir)
				w := s.Take(m.Lock)
				writer := s.Start(b.RWMutex(dir).Lock)
				time.Sleep(settled)
				in := s.Server.Inject(zktest.Hold().Op(zktest.OpMulti).Session(a.SessionID()).Once())
				call := locktest.Go(s.Context(), downgrade(m, w))
				<-in.Hit()
				require.NoError(s, s.Server.Delete(w.Node()))
				synctest.Wait()
				in.Release()
				require.True(s, call.Over())
				require.ErrorIs(s, call.Err, zklock.ErrNodeDeleted)
				require.ErrorIs(s, w.Err(), zklock.ErrNodeDeleted)
				require.ErrorIs(s, w.Unlock(s.Context()), zklock.ErrLost)
				s.Unlock(writer.Get(s))
				s.NothingLeft(dir)
			})
		})
	}
}

// The znode that a downgrade made is deleted by an administrator: a loss like any other.
func TestAReaderThatCameFromADowngradeHearsOfItsLoss(t *testing.T) {
	for _, settled := range []time.Duration{0, time.Second} {
		t.Run(settled.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				m := c.RWMutex(dir)
				r, err := m.Downgrade(s.Context(), s.Take(m.Lock))
				require.NoError(s, err)
				time.Sleep(settled)
				require.NoError(s, r.Check(s.Context()))
				require.NoError(s, s.Server.Delete(r.Node()))
				time.Sleep(time.Second)
				require.ErrorIs(s, r.Err(), zklock.ErrNodeDeleted)
				s.NothingLeft(dir)
			})
		})
	}
}

// An administrator deletes the writer's znode during a downgrade that then fails for another reason: the loss is not
// forgotten.
func TestALossDuringADowngradeThatFailsIsNotForgotten(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a := s.Dir("/locks/a"), s.Client()
		m := a.RWMutex(dir, zklock.WithLockDelay(time.Second))
		w := s.Take(m.Lock)
		time.Sleep(time.Second)                                                                 // the hold's own znode is watched now
		in := s.Server.Inject(zktest.Hold().Op(zktest.OpGetData).Session(a.SessionID()).Once()) // before anything is written
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		call := locktest.Go(ctx, downgrade(m, w))
		<-in.Hit()
		require.NoError(s, s.Server.Delete(w.Node()))
		synctest.Wait() // the notification has arrived
		cancel()
		require.True(s, call.Over())
		require.ErrorIs(s, call.Err, context.Canceled)
		in.Remove()
		synctest.Wait()
		require.ErrorIs(s, w.Err(), zklock.ErrNodeDeleted, "it believes that it holds")
	})
}

// The session ends while it downgrades.
func TestADowngradeWhoseSessionEndsIsALoss(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		m := a.RWMutex(dir)
		w := s.Take(m.Lock)
		writer := s.Start(b.RWMutex(dir).Lock)
		id := a.SessionID()
		s.Server.Inject(zktest.ExpireSession().Op(zktest.OpMulti).Session(id).Once())
		_, err := m.Downgrade(s.Context(), w)
		require.ErrorIs(s, err, zklock.ErrLost)
		require.ErrorIs(s, w.Err(), zklock.ErrSessionExpired)
		s.Unlock(writer.Get(s))
		s.NothingLeft(dir)
	})
}

// Only a hold of this write lock can be downgraded; other holds stay as they are.
func TestOnlyALiveHoldOfThisWriteLockCanBeDowngraded(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		m := a.RWMutex(dir)
		refused := func(h *zklock.Hold, by *zklock.RWMutex, why string) {
			s.Helper()
			r, err := by.Downgrade(s.Context(), h)
			require.Nil(s, r)
			require.ErrorIs(s, err, zklock.ErrNotHeld, why)
			require.ErrorContains(s, err, "zklock: downgrade")
		}
		read := s.Take(m.RLock)
		refused(read, m, "of the read lock")
		s.Owned(a, read)
		s.Unlock(read)
		refused(read, m, "of the read lock, released")

		w := s.Take(m.Lock)
		refused(w, b.RWMutex(dir), "another client's")
		refused(w, a.RWMutex(s.Dir("/locks/b")), "of another lock")
		s.Owned(a, w)
		s.Unlock(w)
		refused(w, m, "released")
		refused(nil, m, "none")

		mutex := s.Lock(a.Mutex("/locks/b"))
		refused(mutex, a.RWMutex("/locks/b"), "of a mutex")
		s.Owned(a, mutex)
		s.Unlock(mutex)
		sem := s.Take(locktest.Permits(a.Semaphore(s.Dir("/locks/c"), 1), 1))
		refused(sem, a.RWMutex("/locks/c"), "of a semaphore")
		s.Unlock(sem)

		w = s.Take(m.Lock)
		lost := w
		require.NoError(s, s.Server.Delete(w.Node()))
		_, err := m.Downgrade(s.Context(), lost)
		require.ErrorIs(s, err, zklock.ErrNodeDeleted)

		w = s.Take(m.Lock)
		r, err := m.Downgrade(s.Context(), w)
		require.NoError(s, err)
		refused(w, m, "downgraded before")
		refused(r, m, "what it was downgraded to")
		s.Unlock(r)
		_, err = a.RWMutex("bad").Downgrade(s.Context(), r)
		require.ErrorIs(s, err, zklock.ErrPath)
		s.NothingLeft(dir)
	})
}

// A transaction whose reply was lost has turned a writer into a reader. The writer's znode takes no more room, though its
// deletion was not reported.
func TestTheWriterOfADowngradeWhoseReplyWasLostTakesNoRoom(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.RWMutex(s.Dir("/locks/a"))
		ses, err := c.Session(s.Context())
		require.NoError(s, err)
		w := s.Take(m.Lock)
		lost := s.Server.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Session(c.SessionID()).Once())
		r, err := m.Downgrade(s.Context(), w)
		require.NoError(s, err)
		require.Equal(s, 1, lost.Hits())
		s.Unlock(r)
		require.Zero(s, ses.EphemeralBytes())
	})
}

// The reply to a downgrade is lost, and a server that lags behind shows that it was not carried out. The second attempt
// finds the reader's znode of the first, and succeeds.
func TestADowngradeWithALostReplyThatFindsItsReadZnodeHasSucceeded(t *testing.T) {
	for _, opts := range [][]zklock.LockOption{nil, {zklock.WithLockDelay(time.Minute)}} {
		for _, again := range []bool{false, true} {
			t.Run(map[bool]string{true: "with a delay"}[opts != nil]+map[bool]string{true: ", the second reply is lost too"}[again], func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
					m := a.RWMutex(dir, opts...)
					w := s.Take(m.Lock)
					writer, reader := s.Start(b.RWMutex(dir, opts...).Lock), s.Start(s.Client().RWMutex(dir, opts...).RLock)
					times := 1
					if again {
						times = 2
					}
					s.Server.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Session(a.SessionID()).Times(times))
					missed := s.Server.Inject(zktest.Answer(zktest.CodeNoNode).Op(zktest.OpExists).Session(a.SessionID()).Path(dir + "/*__READ__*").Once())
					r, err := m.Downgrade(s.Context(), w)
					require.NoError(s, err)
					require.Equal(s, 1, missed.Hits())
					s.Owned(a, r)
					require.Equal(s, w.Token(), r.Token())
					require.Equal(s, "RWR", readers(s, dir))
					time.Sleep(time.Minute)
					require.NoError(s, r.Err())
					s.Unlock(r)
					s.Unlock(writer.Get(s))
					s.Unlock(reader.Get(s))
					s.NothingLeft(dir)
				})
			})
		}
	}
}

func TestADowngradeThatTheFirstLookMissesLeavesNoReaderWhenCtxEndsBeforeTheNextAttempt(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/rw"), s.Client(), s.Client()
		m := a.RWMutex(dir, zklock.WithLockDelay(time.Second))
		h, err := m.Lock(s.Context())
		require.NoError(s, err)
		s.Server.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Session(a.SessionID()).Once()) // carried out, and its reply is lost
		noNode := func(b []byte) []byte { return append(append([]byte{}, b[:12]...), 0xff, 0xff, 0xff, 0x9b) }
		look := s.Server.Inject(zktest.Garble(noNode).Op(zktest.OpExists).Session(a.SessionID()).Once())
		held := s.Server.Inject(zktest.Hold().Op(zktest.OpGetData).Session(a.SessionID()).After(1)) // the read before the second attempt
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		defer cancel()
		_, err = m.Downgrade(ctx, h)
		require.Error(s, err)
		require.Equal(s, 1, look.Hits())
		held.Remove()
		synctest.Wait()
		_ = h.Unlock(s.Context())
		time.Sleep(time.Minute)
		require.NoError(s, a.Current().Err())
		_, err = b.RWMutex(dir).TryLock(s.Context())
		require.NoError(s, err, "%v", s.Server.Children(dir))
	})
}
