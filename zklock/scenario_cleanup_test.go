package zklock_test

import (
	"context"
	"errors"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Nothing is left behind: scenarios 8 to 10 and 16. 11 to 14 are in scenario_release_test.go, 15 in
// scenario_leak_test.go.

// scenario 8: whatever goes wrong after the create, the own znode is gone afterwards, and the error says what it was.
func TestScenario8_AnyErrorAfterTheCreateLeavesNoNode(t *testing.T) {
	refused := fault.Answer(fault.CodeNoAuth)
	for name, c := range map[string]struct {
		fault     fault.Fault
		contended bool // another client holds the lock, and a waiter gives up after a second
		opts      []zklock.LockOption
		want      error
	}{
		"the list is refused":        {fault: refused.Op(fault.OpGetChildren2), want: zk.ErrNoAuth},
		"the list is unknown":        {fault: fault.Answer(fault.CodeUnimplemented).Op(fault.OpGetChildren2)},
		"the list is garbled":        {fault: fault.Garble(func(b []byte) []byte { return b[:20] }).Op(fault.OpGetChildren2)},
		"the watches are refused":    {fault: fault.Answer(fault.CodeMarshallingError).Op(fault.OpSetWatches), contended: true},
		"the second list is refused": {fault: refused.Op(fault.OpGetChildren2).Path("/locks/a").After(1), contended: true, want: zk.ErrNoAuth},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, other, cl := s.Dir("/locks/a"), s.Client(), s.Client()
				var second *locktest.Call
				ctx, giveUp := context.WithCancel(s.Context())
				defer giveUp()
				if c.contended {
					s.Lock(other.Mutex(dir))
					second = locktest.Go(ctx, other.Mutex(dir).Lock)
					require.False(s, second.Over())
				}
				left := len(s.Server.Children(dir))
				id := cl.SessionID()
				failure := s.Server.Inject(c.fault.Session(id).Times(1))
				call := locktest.Go(s.Context(), cl.Mutex(dir, c.opts...).Lock)
				synctest.Wait()
				require.Len(s, cl.Created(), 1, "it got past its create")
				if c.contended && !call.Over() {
					time.Sleep(time.Second)
					giveUp()
					<-second.Done
					left = 1
				}
				<-call.Done
				require.Error(s, call.Err)
				require.Nil(s, call.Hold)
				require.ErrorContains(s, call.Err, dir)
				if c.want != nil {
					require.ErrorIs(s, call.Err, c.want)
				}
				require.Equal(s, 1, failure.Hits())
				s.Until(3*time.Second, "own znode gone", func() bool { return len(s.Server.Children(dir)) == left })
				require.Equal(s, id, cl.SessionID(), "deleted, and not gone with the session")
			})
		})
	}
}

// scenario 8, at the last step: the lease can't be confirmed after a long wait in line.
func TestScenario8_AnErrorWhileTheLeaseIsConfirmedLeavesNoNode(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, other, c := s.Dir("/locks/a"), s.Client(), s.Client()
		first := s.Lock(other.Mutex(dir))
		call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
		require.False(s, call.Over())
		time.Sleep(locktest.LongTime)
		id := c.SessionID()
		failure := s.Server.Inject(fault.Answer(fault.CodeBadArguments).Op(fault.OpMulti).Session(id))
		s.Unlock(first)
		<-call.Done
		require.ErrorIs(s, call.Err, zk.ErrBadArguments)
		require.Positive(s, failure.Hits())
		s.Empty(time.Second, dir)
		require.Equal(s, id, c.SessionID())
	})
}

// scenario 9: a TryLock fails, its clean-up loses the connection, and the session survives: the delete is repeated until
// the znode is deleted.
func TestScenario9_TheCleanUpOfAFailedTryLockIsRepeatedUntilTheNodeIsGone(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"lost before it is carried out": fault.CloseBefore(), "lost after it was carried out": fault.CloseAfter(),
		"swallowed": fault.DropRequest(), "never answered": fault.Stall(0),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
				id := b.SessionID()
				create := s.Server.Inject(fault.Hold().Op(fault.OpCreate).Session(id).Once())
				lost := s.Server.Inject(failure.Op(fault.OpDelete).Session(id).Times(3))
				try := locktest.Go(s.Context(), b.Mutex(dir).TryLock)
				<-create.Hit() // it has found the directory empty
				h := s.Lock(a.Mutex(dir))
				create.Release()
				<-try.Done
				require.ErrorIs(s, try.Err, zklock.ErrBusy)
				want := []string{path.Base(h.Node())}
				s.Until(30*time.Second, "its place is gone", func() bool {
					return len(s.Server.Children(dir)) == 1 && (lost.Hits() == 3 || s.Server.Requests()[fault.OpDelete] > 0)
				})
				require.Equal(s, want, s.Server.Children(dir))
				require.Positive(s, lost.Hits())
				require.Equal(s, id, b.SessionID(), "deleted, and not gone with the session")
				s.Owned(a, h)
			})
		})
	}
}

// scenario 9, when the caller has given up as well.
func TestScenario9_TheCleanUpGoesOnWhenTheTryLocksContextEnds(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		id := b.SessionID()
		create := s.Server.Inject(fault.Hold().Op(fault.OpCreate).Session(id).Once())
		lost := s.Server.Inject(fault.CloseBefore().Op(fault.OpDelete).Session(id).Times(5))
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		try := locktest.Go(ctx, b.Mutex(dir).TryLock)
		<-create.Hit()
		h := s.Lock(a.Mutex(dir))
		create.Release()
		<-lost.Hit()
		cancel()
		require.True(s, try.Over())
		require.Error(s, try.Err)
		s.Until(30*time.Second, "its place is gone", func() bool { return len(s.Server.Children(dir)) == 1 })
		require.Equal(s, 5, lost.Hits())
		require.Equal(s, []string{path.Base(h.Node())}, s.Server.Children(dir))
		require.Equal(s, id, b.SessionID(), "deleted, and not gone with the session")
	})
}

// scenario 10: clean-up with a ctx that has already ended is still carried out, by Lock, Unlock and Do.
func TestScenario10_CleanUpOnAContextThatIsOverIsDone(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		id, m := c.SessionID(), c.Mutex(dir)
		first := s.Lock(m)
		ctx, stop := context.WithTimeout(s.Context(), time.Second)
		_, _, err := m.Lock(ctx) // its place is given up after ctx is over
		stop()
		require.ErrorIs(s, err, context.DeadlineExceeded)
		s.Until(time.Second, "the waiter's place is gone", func() bool { return len(s.Server.Children(dir)) == 1 })
		s.Unlock(first)

		ctx, stop = context.WithCancel(s.Context())
		err = m.Do(ctx, func(ctx context.Context) error {
			stop()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(s, err, context.Canceled)
		require.NotErrorIs(s, err, zklock.ErrLost)
		require.Empty(s, s.Server.Children(dir), "released before Do returned")
		require.Equal(s, id, c.SessionID(), "deleted, and not gone with the session")
	})
}

// scenario 10, the bound: a release that gets no answer delays Do by a tenth of the session timeout at most, whether the session
// lasts or not, and does not turn the result of the work into an error.
func TestScenario10_DosReleaseIsBoundedByATenthOfTheSessionTimeout(t *testing.T) {
	for name, down := range map[string]fault.Fault{
		"no server":                     fault.Freeze(),
		"a server that deletes nothing": fault.DropRequest().Op(fault.OpDelete),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				ctx, cancel := context.WithCancel(s.Context())
				var began time.Time
				var failure *zktest.Injection
				err := c.Mutex(dir).Do(ctx, func(context.Context) error {
					failure = s.Server.Inject(down)
					cancel()
					began = time.Now()
					return nil
				})
				require.NoError(s, err)
				require.Equal(s, time.Second, time.Since(began))
				require.NotEmpty(s, s.Server.Children(dir))
				failure.Remove()
				s.Empty(22*time.Second, dir) // frozen requests may arrive now, and prolong the session: its timeout, and a tick
			})
		})
	}
}

// scenario 16: Close during a create in flight: the znode does not outlive Close by more than the session.
func TestScenario16_ANodeWhoseCreateIsInFlightDoesNotOutliveCloseByMoreThanTheSession(t *testing.T) {
	const session = 10*time.Second + 2*time.Second // the timeout, and the tick at which the server looks
	for name, failure := range map[string]fault.Fault{
		"held back": fault.Hold(), "not answered": fault.HoldReply(), "connection lost before": fault.CloseBefore(),
		"connection lost after": fault.CloseAfter(), "link dead": fault.Freeze(), "requests pass": fault.FreezeReplies(),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				id := c.SessionID()
				held := s.Server.Inject(failure.Op(fault.OpCreate).Path("/locks/a/*").Once())
				refused := s.Server.Inject(fault.Refuse())
				call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
				<-held.Hit()
				require.False(s, call.Over())
				closed := time.Now()
				require.NoError(s, c.Close())
				require.LessOrEqual(s, time.Since(closed), 2500*time.Millisecond)
				require.True(s, call.Over())
				require.ErrorIs(s, call.Err, zklock.ErrClosed)
				require.Nil(s, call.Hold)
				if name == "held back" || name == "not answered" {
					held.Release()
				}
				time.Sleep(time.Until(closed.Add(session)))
				synctest.Wait()
				require.Empty(s, s.Server.Children(dir))
				_, alive := s.Server.Session(id)
				require.False(s, alive)
				refused.Remove()
				held.Remove()
			})
		})
	}
}

// scenario 16, in the usual case: with a server that answers, a closed client's places are gone when Close returns.
func TestScenario16_CloseFreesEverythingAtOnceWhenAServerAnswers(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		h := s.Lock(a.Mutex(dir))
		waits := locktest.Go(s.Context(), a.Mutex(dir).Lock)
		next := locktest.Go(s.Context(), b.Mutex(dir).Lock)
		require.False(s, next.Over())
		began := time.Now()
		require.NoError(s, a.Close())
		require.True(s, next.Over())
		s.Owned(b, next.Get(s))
		require.Equal(s, began, next.At)
		require.True(s, waits.Over())
		require.ErrorIs(s, waits.Err, zklock.ErrClosed)
		require.ErrorIs(s, h.Err(), zklock.ErrClosed)
		require.False(s, errors.Is(h.Err(), zklock.ErrLost))
		require.Len(s, s.Server.Children(dir), 1)
	})
}
