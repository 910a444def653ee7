package zklock_test

import (
	"context"
	"encoding/binary"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Was my znode created? Scenarios 1 to 4; 5 to 7 are in scenario_entry_test.go.

// lostReplies are the ways in which a reply can get lost after the server has carried the request out.
var lostReplies = map[string]fault.Fault{
	"connection closed":         fault.CloseAfter(),
	"reply dropped":             fault.DropReply(),
	"reply cut short":           fault.Truncate(9),
	"reply never comes":         fault.Stall(0),
	"reply stops in the middle": fault.Stall(19),
	"link freezes":              fault.FreezeReplies(),
}

// scenario 1: the reply to a create is lost after the server has committed it, and the session survives: the znode is found
// by its id and used, and there are never two for one call.
func TestScenario1_ACreateWhoseReplyWasLostIsFoundAgainByItsID(t *testing.T) {
	calls := map[string]func(*zklock.Mutex, context.Context) (context.Context, *zklock.Hold, error){
		"Lock": (*zklock.Mutex).Lock, "TryLock": (*zklock.Mutex).TryLock,
	}
	for name, failure := range lostReplies {
		for call, lock := range calls {
			t.Run(call+", "+name, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, c := s.Dir("/locks/a"), s.Client()
					before, creates := c.SessionID(), s.Server.Requests()[fault.OpCreate]
					lost := s.Server.Inject(failure.Op(fault.OpCreate).Path("/locks/a/*").Once())
					_, h, err := lock(c.Mutex(dir), s.Context())
					require.NoError(s, err)
					require.Equal(s, 1, lost.Hits())
					lost.Remove()
					require.Equal(s, []string{path.Base(h.Node())}, s.Server.Children(dir), "one znode for one call")
					require.Equal(s, creates+1, s.Server.Requests()[fault.OpCreate], "it was made once")
					require.Equal(s, before, c.SessionID(), "the session survived")
					s.Owned(c, h)
					s.Unlock(h)
					require.Empty(s, s.Server.Children(dir))
				})
			})
		}
	}
}

// scenario 2: the caller's ctx ends while create is in flight: the call returns at once, and the znode is deleted when
// the outcome becomes known.
func TestScenario2_ACallWhoseContextEndsDuringItsCreateReturnsAtOnceAndLeavesNothing(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"not carried out yet": fault.Hold(),
		"carried out":         fault.HoldReply(),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				id := c.SessionID()
				held := s.Server.Inject(failure.Op(fault.OpCreate).Path("/locks/a/*").Once())
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				call := locktest.Go(ctx, c.Mutex(dir).Lock)
				<-held.Hit()
				require.False(s, call.Over())
				time.Sleep(time.Second)
				gone := time.Now()
				cancel()
				require.True(s, call.Over())
				require.ErrorIs(s, call.Err, context.Canceled)
				require.Nil(s, call.Hold)
				require.Equal(s, gone, call.At, "it did not wait for the reply")

				created := s.Server.Requests()[fault.OpCreate]
				time.Sleep(100 * time.Millisecond)
				held.Release()
				s.Until(time.Second, "the create is carried out and undone", func() bool {
					r := s.Server.Requests()
					return r[fault.OpDelete] == 1 && r[fault.OpCreate] >= created
				})
				require.Empty(s, s.Server.Children(dir))
				require.Equal(s, id, c.SessionID(), "deleted, and not gone with the session")
				s.Unlock(s.Lock(c.Mutex(dir)))
			})
		})
	}
}

// scenario 2, with the connection lost too: the outcome of the create is found out on the next one.
func TestScenario2_ACreateInFlightIsCleanedUpAcrossAReconnectAfterItsCallerHasGone(t *testing.T) {
	for name, failure := range lostReplies {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				id := c.SessionID()
				refused := s.Server.Inject(fault.Refuse())
				lost := s.Server.Inject(failure.Op(fault.OpCreate).Path("/locks/a/*").Once())
				ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
				defer cancel()
				_, _, err := c.Mutex(dir).Lock(ctx)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.Len(s, s.Server.Children(dir), 1)
				lost.Remove()
				refused.Remove()
				s.Empty(5*time.Second, dir)
				require.Equal(s, id, c.SessionID(), "deleted, and not gone with the session")
			})
		})
	}
}

// scenario 3: as 1, but the client reconnects to a follower that has not applied the create yet: it syncs before it
// looks for the znode.
func TestScenario3_ALostCreateIsLookedForOnlyAfterASync(t *testing.T) {
	for _, abandoned := range []bool{false, true} {
		name := map[bool]string{false: "the caller waits", true: "the caller has gone"}[abandoned]
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				f, dir, c := s.Follower(), s.Dir("/locks/a"), s.Client()
				before := c.SessionID()
				require.NoError(s, c.Current().Sync(s.Context(), "/"))
				f.Lag(1) // from here on it lacks the last transaction: the create
				c.LeadTo(f)
				lost := s.Server.Inject(fault.CloseAfter().Op(fault.OpCreate).Path("/locks/a/*").Once())
				sync := f.Inject(fault.Hold().Op(fault.OpSync).Once())
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				call := locktest.Go(ctx, c.Mutex(dir).Lock)
				<-lost.Hit()
				if abandoned {
					cancel()
				}
				s.Until(2*time.Second, "a sync at the follower", func() bool { return sync.Hits() == 1 })
				node := dir + "/" + s.Server.Children(dir)[0]
				require.NotContains(s, f.Nodes(), node, "the follower lags behind the create")
				sync.Release()
				if abandoned {
					s.Empty(time.Second, dir)
					require.ErrorIs(s, call.Err, context.Canceled)
				} else {
					require.Equal(s, node, call.Get(s).Node())
					require.Len(s, s.Server.Children(dir), 1)
					s.Owned(c, call.Hold)
				}
				require.Equal(s, 1, s.Server.Requests()[fault.OpCreate], "it was made once")
				require.Equal(s, before, c.SessionID())
			})
		})
	}
}

// scenario 3, with a leader that answers the sync and has not yet carried out what a follower acknowledged: a znode whose
// call has given up is looked for again after a write.
func TestScenario3_AnAbandonedCreateThatASyncDidNotShowIsDeleted(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		f, dir, c := s.Follower(), s.Dir("/locks/a"), s.Client()
		before := c.SessionID()
		require.NoError(s, c.Current().Sync(s.Context(), "/"))
		f.Lag(1)
		c.LeadTo(f)
		lost := s.Server.Inject(fault.CloseAfter().Op(fault.OpCreate).Path("/locks/a/*").Once())
		blind := f.Inject(fault.Answer(fault.CodeOK).Op(fault.OpSync).Once())
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		call := locktest.Go(ctx, c.Mutex(dir).Lock)
		<-lost.Hit()
		cancel()
		s.Until(2*time.Second, "a sync at the follower", func() bool { return blind.Hits() == 1 })
		s.Empty(time.Second, dir)
		require.ErrorIs(s, call.Err, context.Canceled)
		require.Equal(s, before, c.SessionID(), "deleted, and not gone with the session")
	})
}

// scenario 3, second half: whenever the directory is listed, other znodes with our id are deleted.
func TestScenario3_AStrayWithOurIDIsSweptAwayWhenTheDirectoryIsListed(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, other := s.Dir("/locks/a"), s.Client(), s.Client()
		first := s.Lock(other.Mutex(dir))
		second := locktest.Go(s.Context(), other.Mutex(dir).Lock)
		require.False(s, second.Over())
		third := locktest.Go(s.Context(), c.Mutex(dir).Lock)
		require.False(s, third.Over())
		time.Sleep(time.Second)
		names := c.Created()
		require.Len(s, names, 1)
		stray := dir + "/" + names[0] + "0000000077"
		z, err := c.Session(s.Context())
		require.NoError(s, err)
		_, err = z.Create(s.Context(), stray, nil, session.Ephemeral, session.WorldACL()) // as a late create would be
		require.NoError(s, err)
		bystander := dir + "/_c_00000000-0000-4000-8000-000000000000-lock-0000000078"
		require.NoError(s, s.Server.Create(bystander, nil))

		require.NoError(s, s.Server.Delete(dir+"/"+locktest.Contenders(s.Server.Children(dir))[1])) // now the third lists again
		s.Until(time.Second, "the stray is gone", func() bool { _, ok := s.Server.Node(stray); return !ok })
		require.Contains(s, s.Server.Nodes(), bystander, "nobody else's is touched")
		require.NoError(s, s.Server.Delete(bystander))
		s.Unlock(first)
		s.Unlock(third.Get(s))
		s.Unlock(second.Get(s))
	})
}

// scenario 4: as 1, but the session is over in between, and its znode is still listed when the client stands in line
// again: it is not taken for the new session's.
func TestScenario4_AnOldSessionsNodeIsNotAdoptedByTheNext(t *testing.T) {
	const tick, timeout = 4 * time.Second, 12 * time.Second
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client(zklock.WithSessionTimeout(timeout), zklock.WithTickTime(tick))
		old := c.SessionID()
		lost := s.Server.Inject(fault.FreezeReplies().Op(fault.OpCreate).Path("/locks/a/*").Once())
		call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
		<-lost.Hit()
		synctest.Wait()
		ours := dir + "/" + s.Server.Children(dir)[0]
		cut := s.Server.Inject(fault.Freeze().Session(old)) // of the session, for good: it ends by its lease clock
		s.Until(2*timeout, "a place in a new session", func() bool { return len(s.Server.Children(dir)) == 2 })
		require.Contains(s, s.Server.Nodes(), ours, "the old one is still listed")
		require.NotEqual(s, old, c.SessionID())
		require.False(s, call.Over(), "the old session's place comes first until it is gone")
		h := call.Get(s)
		require.NotContains(s, s.Server.Nodes(), ours)
		require.NotEqual(s, ours, h.Node())
		s.Owned(c, h)
		require.Len(s, s.Server.Children(dir), 1)
		cut.Remove()
	}, zktest.WithTick(tick))
}

// scenario 4, within one call: a znode whose name begins with our id, but which another session owns, is not adopted.
func TestScenario4_ANodeWithOurIDThatAnotherSessionOwnsIsNotAdopted(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
		lost := s.Server.Inject(fault.CloseAfter().Op(fault.OpCreate).Path("/locks/a/*").Once())
		refused := s.Server.Inject(fault.Refuse())
		call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
		<-lost.Hit()
		synctest.Wait()
		node := dir + "/" + s.Server.Children(dir)[0]
		require.NoError(s, s.Server.Delete(node))
		s.Plant(other, node)
		refused.Remove()
		s.Until(3*time.Second, "a place of its own", func() bool { return len(s.Server.Children(dir)) == 2 })
		time.Sleep(time.Minute)
		require.False(s, call.Over(), "the other's place comes first")
		require.Contains(s, s.Server.Nodes(), node, "and is nobody's to delete but its owner's")
		require.NoError(s, other.Delete(s.Context(), node, -1))
		h := call.Get(s)
		require.NotEqual(s, node, h.Node())
		s.Owned(c, h)
	})
}

// A server in trouble carries a create out, and answers with a code that is no refusal. The failed call must leave no contender
// behind.
func TestACreateThatIsAnsweredWithAnUnknownCodeLeavesNothingBehind(t *testing.T) {
	trouble := func(reply []byte) []byte {
		return binary.BigEndian.AppendUint32(reply[:12], 0xffffffff) // −1, "system error"
	}
	for name, c := range map[string]struct {
		op   fault.Op
		lock func(c *locktest.Client, dirs []string) locktest.Acquire
	}{
		"one path": {fault.OpCreate, func(c *locktest.Client, dirs []string) locktest.Acquire {
			return c.Mutex(dirs[0]).Lock
		}},
		"several paths": {fault.OpMulti, func(c *locktest.Client, dirs []string) locktest.Acquire {
			return c.MultiLock(dirs).Lock
		}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, client := dirs(s, 3), s.Client()
				s.Server.Inject(fault.Garble(trouble).Op(c.op).Once())
				_, _, err := c.lock(client, dirs)(s.Context())
				require.Error(s, err)
				emptyAll(s, 5*time.Second, dirs)
			})
		})
	}
}
