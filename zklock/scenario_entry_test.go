package zklock_test

import (
	"context"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Scenarios 5 to 7: places in line, and which names count as one.

// contenderName is the form of the names of our znodes: the id, once and first, then the kind, then the number.
const contenderName = `^_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-lock-\d{10}$`

// scenario 5: the session expires between create and list: Lock does not succeed without a znode of its own in the
// list, but queues again in the new session.
func TestScenario5_ASessionThatEndsBetweenCreateAndListIsQueuedAgain(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"before the list is carried out": fault.ExpireSession(),
		"while the list waits":           fault.Hold(),
		"after the list was lost":        fault.CloseBefore(),
		"after the reply was lost":       fault.CloseAfter(),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				old := c.SessionID()
				away := s.Server.Inject(fault.Refuse())
				at := s.Server.Inject(failure.Op(fault.OpGetChildren2).Path(dir).Once())
				call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
				<-at.Hit()
				require.False(s, call.Over())
				if _, ok := s.Server.Session(old); ok {
					require.Len(s, s.Server.Children(dir), 1, "it had been created")
					require.NoError(s, s.Server.Expire(old))
				}
				at.Remove()
				away.Remove()
				h := call.Get(s)
				require.NotEqual(s, old, c.SessionID())
				require.Equal(s, []string{path.Base(h.Node())}, s.Server.Children(dir))
				s.Owned(c, h)
			})
		})
	}
}

// scenario 5, without the expiry: another client deletes the znode between create and list.
func TestScenario5_LockDoesNotSucceedWithoutANodeOfItsOwnInTheList(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		list := s.Server.Inject(fault.Hold().Op(fault.OpGetChildren2).Path(dir).Once())
		call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
		<-list.Hit()
		first := dir + "/" + s.Server.Children(dir)[0]
		require.NoError(s, s.Server.Delete(first))
		list.Release()
		h := call.Get(s)
		require.NotEqual(s, first, h.Node())
		s.Owned(c, h)
	})
}

// scenario 6: however often a create has to be repeated, the id stands once in the name, and before the base name.
func TestScenario6_TheIDIsPutOnceBeforeTheBaseNameHoweverOftenACreateIsRepeated(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		failed := s.Server.Inject(fault.CloseBefore().Op(fault.OpCreate).Path("/locks/a/*").Times(4))
		h := s.Lock(c.Mutex(dir))
		require.Equal(s, 4, failed.Hits())
		require.Regexp(s, contenderName, path.Base(h.Node()))
		tried := c.Created()
		require.Len(s, tried, 5)
		for _, name := range tried {
			require.Equal(s, strings.TrimRight(path.Base(h.Node()), "0123456789"), name, "the same id each time")
		}
		s.Unlock(h)

		// Also in another session, and when the directory has to be made in between.
		expired := s.Server.Inject(fault.ExpireSession().Op(fault.OpMulti).Path("/locks/new/*").Times(1))
		h = s.Lock(c.Mutex("/locks/new"))
		require.Equal(s, 1, expired.Hits())
		require.Regexp(s, contenderName, path.Base(h.Node()))
		s.Owned(c, h)
	})
}

// scenario 7: children with short or strange names are no contenders: they are ignored, and nothing panics or leaks.
func TestScenario7_ForeignNamesAreIgnored(t *testing.T) {
	foreign := []string{"_c_x", "_c_", "0", "README", "lock-", "lock", "lock-12", "-lock-0", "lock-99999999999", "__lock__",
		"_c_-lock-", "lock-0000000000x", "_c_00000000-0000-4000-8000-000000000000-lock-9999999999", "-", "lock--", "é\u3042"}
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		for _, name := range foreign {
			require.NoError(s, s.Server.Create(dir+"/"+name, []byte{0xff, 0xfe, 0, '{'}))
		}
		before, goroutines := s.Server.Nodes(), locktest.Goroutines()
		for range 3 {
			_, h, err := a.Mutex(dir).TryLock(s.Context())
			require.NoError(s, err)
			_, _, err = b.Mutex(dir).TryLock(s.Context())
			require.ErrorIs(s, err, zklock.ErrBusy)
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			_, _, err = b.Mutex(dir).Lock(ctx)
			cancel()
			require.ErrorIs(s, err, context.DeadlineExceeded)
			next := locktest.Go(s.Context(), b.Mutex(dir).Lock)
			require.False(s, next.Over())
			time.Sleep(time.Second)
			s.Unlock(h)
			s.Unlock(next.Get(s))
		}
		synctest.Wait()
		after := s.Server.Nodes()
		require.Equal(s, before[dir].Data, after[dir].Data)
		delete(before, dir) // its stat has counted ours
		delete(after, dir)
		require.Equal(s, before, after, "theirs are as they were, and none of ours is left")
		require.Zero(s, s.Server.WatchCount())
		require.Equal(s, goroutines, locktest.Goroutines())
	})
}

// scenario 7: the data of a holder's znode are for people; no data can disturb a waiter.
func TestScenario7_AContenderWithUnreadableDataIsWaitedForLikeAnyOther(t *testing.T) {
	const name = "_c_ffffffff-ffff-4fff-8fff-ffffffffffff-lock-0000000000"
	for what, data := range map[string]struct {
		data  []byte
		named string // what the waiter's error calls the holder
	}{
		"invalid UTF-8":          {[]byte{0xff, 0xfe, 0xfd}, name},
		"an 8-bit control":       {[]byte("a\x9b2Jb"), name},
		"nothing":                {nil, name},
		"control characters":     {[]byte("a\x1b[2Jb\r\n"), name},
		"JSON of the wrong kind": {[]byte(`[{"host":1}]`), `[{"host":1}]`},
		"JSON with a bad field":  {[]byte(`{"host":"h","pid":"p"}`), `{"host":"h","pid":"p"}`},
		"a long text":            {[]byte(strings.Repeat("x", 5000)), name},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
				node := dir + "/" + name
				_, err := other.Create(s.Context(), node, data.data, session.Ephemeral, session.WorldACL())
				require.NoError(s, err)
				require.NoError(s, s.Server.SetSequence(dir, 1))
				ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second)
				defer cancel()
				_, _, err = c.Mutex(dir).Lock(ctx)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.ErrorContains(s, err, "2nd in line behind "+data.named)
				_, _, err = c.Mutex(dir).TryLock(s.Context())
				require.ErrorIs(s, err, zklock.ErrBusy)
				next := locktest.Go(s.Context(), c.Mutex(dir).Lock)
				require.False(s, next.Over())
				require.NoError(s, other.Delete(s.Context(), node, -1))
				s.Owned(c, next.Get(s))
			})
		})
	}
}
