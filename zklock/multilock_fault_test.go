package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A MultiLock's transactions when something goes wrong.

// The reply to the transaction is lost, and it was carried out: its places are adopted, and nothing else is made.
func TestAMultiLockWhoseReplyIsLostIsAdopted(t *testing.T) {
	for _, n := range []int{1, 2, 3} { // how often
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dirs, c := s.multiDirs(4), s.client()
				s.srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Times(n))
				h := s.multiTake(c.MultiLock(dirs))
				s.multiOwned(c, h, dirs...)
				for _, dir := range dirs {
					children := s.srv.Children(dir)
					require.Len(s, children, 1)
					require.Regexp(s, "-0000000000$", children[0], "nothing was made before it")
				}
				s.unlock(h)
				s.multiEmpty(0, dirs)
			})
		})
	}
}

// The transaction never arrives, or is refused because its connection ends: it is made again, once.
func TestAMultiLockWhoseTransactionIsLostIsMadeAgain(t *testing.T) {
	simTest(t, func(s *sim) {
		dirs, c := s.multiDirs(4), s.client()
		s.srv.Inject(zktest.CloseBefore().Op(zktest.OpMulti).Times(3))
		h := s.multiTake(c.MultiLock(dirs))
		s.multiOwned(c, h, dirs...)
		for _, dir := range dirs {
			require.Len(s, s.srv.Children(dir), 1)
		}
	})
}

// The reply is lost, and before the client is back somebody has deleted one of the znodes: whichever it was, the rest of
// that transaction must not stand in the way of the next.
func TestAMultiLockWhoseReplyIsLostAndOneOfWhoseZnodesIsDeletedStartsAfresh(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dirs, c := s.multiDirs(3), s.client()
				away := s.srv.Inject(zktest.Refuse())
				s.srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Once())
				ctx, cancel := context.WithTimeout(s.Context(), 8*time.Second) // within the session: its end would tidy up
				defer cancel()
				call := simGo(ctx, c.MultiLock(dirs).Lock)
				synctest.Wait()
				require.NoError(s, s.srv.Delete(dirs[i]+"/"+s.srv.Children(dirs[i])[0]))
				away.Remove()
				h := call.get(s)
				s.multiOwned(c, h, dirs...)
				for _, dir := range dirs {
					s.until(time.Second, "one place left in "+dir, func() bool { return len(s.srv.Children(dir)) == 1 })
				}
				s.multiOwned(c, h, dirs...)
				time.Sleep(time.Second)
				s.multiOwned(c, h, dirs...)
				s.unlock(h)
				s.multiEmpty(0, dirs)
			})
		})
	}
}

// ctx ends while the transaction, or a list behind it, is under way: the call returns at once, and nothing is left.
func TestAMultiLockWhoseContextEndsInFlightLeavesNothing(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"transaction on its way":     zktest.Hold().Op(zktest.OpMulti),
		"its reply on its way":       zktest.HoldReply().Op(zktest.OpMulti),
		"a list on its way":          zktest.Hold().Op(zktest.OpGetChildren2).Path("/m/b"),
		"the last list's reply":      zktest.HoldReply().Op(zktest.OpGetChildren2).Path("/m/c"),
		"everything is stuck":        zktest.Freeze(),
		"nothing comes back":         zktest.FreezeReplies(),
		"the connection then breaks": zktest.CloseAfter().Op(zktest.OpMulti),
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dirs, c := s.multiDirs(3), s.client()
				in := s.srv.Inject(fault)
				ctx, cancel := context.WithTimeout(s.Context(), time.Second)
				defer cancel()
				call := simGo(ctx, c.MultiLock(dirs).Lock)
				<-call.done
				if call.err != nil { // the reply that was lost was asked for again in time
					require.ErrorIs(s, call.err, context.DeadlineExceeded)
					require.Equal(s, time.Second, call.spent)
				} else {
					s.unlock(call.hold)
				}
				in.Remove()
				s.multiEmpty(5*time.Second, dirs)
				h := s.multiTake(c.MultiLock(dirs))
				s.multiOwned(c, h, dirs...)
				s.unlock(h)
			})
		})
	}
}

// The reply to the release is lost, or the release itself: Unlock asks again, and knows its own deletion.
func TestAMultiLocksReleaseWhoseReplyIsLostSucceeds(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"reply":   zktest.CloseAfter().Op(zktest.OpMulti).Once(),
		"request": zktest.CloseBefore().Op(zktest.OpMulti).Once(),
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dirs, c := s.multiDirs(3), s.client()
				h := s.multiTake(c.MultiLock(dirs))
				s.srv.Inject(fault)
				s.unlock(h)
				s.multiEmpty(0, dirs)
				require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrNotHeld)
				require.ErrorIs(s, h.Err(), zklock.ErrUnlocked)
			})
		})
	}
}

// The release is cut short by its ctx: it goes on.
func TestAMultiLocksReleaseGoesOnAfterItsContext(t *testing.T) {
	simTest(t, func(s *sim) {
		dirs, c := s.multiDirs(3), s.client()
		h := s.multiTake(c.MultiLock(dirs))
		held := s.srv.Inject(zktest.Hold().Op(zktest.OpMulti))
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		require.ErrorIs(s, h.Unlock(ctx), context.DeadlineExceeded)
		held.Remove()
		s.multiEmpty(5*time.Second, dirs)

		over, end := context.WithCancel(s.Context())
		end()
		h = s.multiTake(c.MultiLock(dirs))
		require.ErrorIs(s, h.Unlock(over), context.Canceled)
		s.multiEmpty(time.Second, dirs)
	})
}

// Somebody deletes one of the znodes of a hold: the whole hold is lost, and says why; Unlock gives the others free.
func TestAMultiLockOneOfWhoseZnodesIsDeletedIsLostAsAWhole(t *testing.T) {
	for i := range 3 {
		for _, held := range []time.Duration{0, time.Second, time.Hour} {
			t.Run(fmt.Sprintf("%d after %v", i, held), func(t *testing.T) {
				simTest(t, func(s *sim) {
					dirs, c, other := s.multiDirs(3), s.client(), s.client()
					h := s.multiTake(c.MultiLock(dirs))
					lost := lossOf(h)
					time.Sleep(held)
					began := time.Now()
					require.NoError(s, s.srv.Delete(h.Nodes()[i]))
					loss := <-lost
					require.Equal(s, zklock.ErrNodeDeleted, loss.cause)
					require.LessOrEqual(s, loss.at.Sub(began), 300*time.Millisecond)
					_, err := h.Multi(s.Context(), &zk.SetDataRequest{Path: dirs[0], Version: -1})
					require.ErrorIs(s, err, zklock.ErrNodeDeleted)
					for j, dir := range dirs {
						if j != i {
							require.Len(s, s.srv.Children(dir), 1, "until Unlock it keeps the others")
						}
					}
					require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrNodeDeleted)
					s.multiEmpty(time.Second, dirs)
					s.unlock(s.multiTake(other.MultiLock(dirs)))
				})
			})
		}
	}
}

// Somebody deletes one of the znodes in the moment of the release: the others go all the same.
func TestAMultiLocksReleaseFindsOneOfItsZnodesGone(t *testing.T) {
	simTest(t, func(s *sim) {
		dirs, c := s.multiDirs(3), s.client()
		h := s.multiTake(c.MultiLock(dirs))
		require.NoError(s, s.srv.Delete(h.Nodes()[1]))
		require.NoError(s, h.Err(), "it has not heard of it yet")
		require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrNodeDeleted)
		s.multiEmpty(0, dirs)
	})
}

// Somebody deletes one of the znodes of a waiter: it queues again with all of them. Also when the one that is gone is
// in a line in which it was first already, and of which it would hear nothing more.
func TestAWaitingMultiLockOneOfWhoseZnodesIsDeletedQueuesAgain(t *testing.T) {
	for busy := range 3 {
		for gone := range 3 {
			for _, waited := range []time.Duration{400 * time.Millisecond, 10 * time.Minute} {
				t.Run(fmt.Sprintf("waits for %d, loses %d after %v", busy, gone, waited), func(t *testing.T) {
					simTest(t, func(s *sim) {
						dirs, c, other := s.multiDirs(3), s.client(), s.client()
						h := s.lock(other.Mutex(dirs[busy]))
						call := simGo(s.Context(), c.MultiLock(dirs).Lock)
						time.Sleep(waited)
						line := contenders(s.srv.Children(dirs[gone]))
						require.NoError(s, s.srv.Delete(dirs[gone]+"/"+line[len(line)-1]))
						s.until(time.Second, "it stands again", func() bool {
							now := contenders(s.srv.Children(dirs[gone]))
							return len(now) > 0 && now[len(now)-1] != line[len(line)-1]
						})
						require.False(s, call.over())
						s.unlock(h)
						s.multiOwned(c, call.get(s), dirs...)
						for _, dir := range dirs {
							require.Len(s, s.srv.Children(dir), 1)
						}
					})
				})
			}
		}
	}
}

// The znode in a line in which a waiter was first already is deleted, and somebody else takes that lock, in the very
// moment before the rest of its locks becomes free.
func TestAMultiLockDoesNotBeginWithAZnodeThatIsGone(t *testing.T) {
	for _, waited := range []time.Duration{400 * time.Millisecond, time.Hour} {
		t.Run(waited.String(), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dirs, c, other := s.multiDirs(2), s.client(), s.client()
				h := s.lock(other.Mutex(dirs[0]))
				call := simGo(s.Context(), c.MultiLock(dirs).Lock)
				time.Sleep(waited)
				stuck := s.srv.Inject(zktest.HoldReply().Op(zktest.OpNotify).Session(c.id()))
				require.NoError(s, s.srv.Delete(dirs[1]+"/"+s.srv.Children(dirs[1])[0]))
				usurper := s.lock(other.Mutex(dirs[1]))
				s.unlock(h)
				stuck.Remove() // now it hears of both at once
				require.False(s, call.over(), "somebody else holds %s", path.Base(dirs[1]))
				s.unlock(usurper)
				s.multiOwned(c, call.get(s), dirs...)
			})
		})
	}
}

// The directories are deleted while somebody waits: they are made again, and it queues again.
func TestAWaitingMultiLockWhoseDirectoriesAreDeletedMakesThemAgain(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dirs, c, other := s.multiDirs(3), s.client(), s.client()
				h := s.lock(other.Mutex(dirs[1]))
				call := simGo(s.Context(), c.MultiLock(dirs).Lock)
				time.Sleep(time.Second)
				s.remove(dirs[i], true)
				time.Sleep(time.Second)
				if i != 1 {
					require.False(s, call.over())
					s.unlock(h)
				} else {
					s.until(time.Second, "the holder hears of it", func() bool { return errors.Is(h.Err(), zklock.ErrNodeDeleted) })
				}
				got := call.get(s)
				if i == 1 && got.Err() != nil { // its znode there went after the holder's: for that moment it held
					require.ErrorIs(s, got.Err(), zklock.ErrNodeDeleted)
					require.ErrorIs(s, got.Unlock(s.Context()), zklock.ErrNodeDeleted) // of the others
					got = s.multiTake(c.MultiLock(dirs))
				}
				s.multiOwned(c, got, dirs...)
			})
		})
	}
}
