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

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Tests of faults during a MultiLock's transactions.

// The transaction was carried out, and its reply is lost: its znodes are adopted, and no others are made.
func TestAMultiLockWhoseReplyIsLostIsAdopted(t *testing.T) {
	for _, n := range []int{1, 2, 3} { // how often
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, c := dirs(s, 4), s.Client()
				s.Server.Inject(fault.CloseAfter().Op(fault.OpMulti).Times(n))
				h := takeAll(s, c.MultiLock(dirs))
				ownedAll(s, c, h, dirs...)
				for _, dir := range dirs {
					children := s.Server.Children(dir)
					require.Len(s, children, 1)
					require.Regexp(s, "-0000000000$", children[0], "nothing was made before it")
				}
				s.Unlock(h)
				emptyAll(s, 0, dirs)
			})
		})
	}
}

// The transaction never arrives, or is refused because its connection ends: it is made again, once.
func TestAMultiLockWhoseTransactionIsLostIsMadeAgain(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dirs, c := dirs(s, 4), s.Client()
		s.Server.Inject(fault.CloseBefore().Op(fault.OpMulti).Times(3))
		h := takeAll(s, c.MultiLock(dirs))
		ownedAll(s, c, h, dirs...)
		for _, dir := range dirs {
			require.Len(s, s.Server.Children(dir), 1)
		}
	})
}

// The reply is lost, and before the client has reconnected another client deletes one of the znodes. Whichever it was, the
// others of that transaction must not block the next attempt.
func TestAMultiLockWhoseReplyIsLostAndOneOfWhoseZnodesIsDeletedStartsAfresh(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, c := dirs(s, 3), s.Client()
				away := s.Server.Inject(fault.Refuse())
				s.Server.Inject(fault.CloseAfter().Op(fault.OpMulti).Once())
				ctx, cancel := context.WithTimeout(s.Context(), 8*time.Second) // within the session, whose end would delete the znodes
				defer cancel()
				call := locktest.Go(ctx, c.MultiLock(dirs).Lock)
				synctest.Wait()
				require.NoError(s, s.Server.Delete(dirs[i]+"/"+s.Server.Children(dirs[i])[0]))
				away.Remove()
				h := call.Get(s)
				ownedAll(s, c, h, dirs...)
				for _, dir := range dirs {
					s.Until(time.Second, "one place left in "+dir, func() bool { return len(s.Server.Children(dir)) == 1 })
				}
				ownedAll(s, c, h, dirs...)
				time.Sleep(time.Second)
				ownedAll(s, c, h, dirs...)
				s.Unlock(h)
				emptyAll(s, 0, dirs)
			})
		})
	}
}

// ctx ends while the transaction, or a list behind it, is under way: the call returns at once, and nothing is left.
func TestAMultiLockWhoseContextEndsInFlightLeavesNothing(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"transaction on its way":     fault.Hold().Op(fault.OpMulti),
		"its reply on its way":       fault.HoldReply().Op(fault.OpMulti),
		"the lists on their way":     fault.Hold().Op(fault.OpMultiRead),
		"the lists' reply":           fault.HoldReply().Op(fault.OpMultiRead),
		"everything is stuck":        fault.Freeze(),
		"nothing comes back":         fault.FreezeReplies(),
		"the connection then breaks": fault.CloseAfter().Op(fault.OpMulti),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, c := dirs(s, 3), s.Client()
				in := s.Server.Inject(failure)
				ctx, cancel := context.WithTimeout(s.Context(), time.Second)
				defer cancel()
				call := locktest.Go(ctx, c.MultiLock(dirs).Lock)
				<-call.Done
				if call.Err != nil { // the lost reply was replaced in time
					require.ErrorIs(s, call.Err, context.DeadlineExceeded)
					require.Equal(s, time.Second, call.Spent)
				} else {
					s.Unlock(call.Hold)
				}
				in.Remove()
				emptyAll(s, 5*time.Second, dirs)
				h := takeAll(s, c.MultiLock(dirs))
				ownedAll(s, c, h, dirs...)
				s.Unlock(h)
			})
		})
	}
}

// The reply to the release is lost, or the release itself: Unlock repeats it, and recognises its own deletion.
func TestAMultiLocksReleaseWhoseReplyIsLostSucceeds(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"reply":   fault.CloseAfter().Op(fault.OpMulti).Once(),
		"request": fault.CloseBefore().Op(fault.OpMulti).Once(),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, c := dirs(s, 3), s.Client()
				h := takeAll(s, c.MultiLock(dirs))
				s.Server.Inject(failure)
				s.Unlock(h)
				emptyAll(s, 0, dirs)
				require.ErrorIs(s, h.Unlock(), zklock.ErrUnlocked)
				require.ErrorIs(s, h.Err(), zklock.ErrUnlocked)
			})
		})
	}
}

// Another client deletes one of the znodes of a hold: the whole hold is lost, with the cause, and Unlock deletes the others.
func TestAMultiLockOneOfWhoseZnodesIsDeletedIsLostAsAWhole(t *testing.T) {
	for i := range 3 {
		for _, held := range []time.Duration{0, time.Second, locktest.LongTime} {
			t.Run(fmt.Sprintf("%d after %v", i, held), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dirs, c, other := dirs(s, 3), s.Client(), s.Client()
					h := takeAll(s, c.MultiLock(dirs))
					lost := locktest.LossOf(h)
					time.Sleep(held)
					began := time.Now()
					require.NoError(s, s.Server.Delete(h.Nodes()[i]))
					loss := <-lost
					require.Equal(s, zklock.ErrNodeDeleted, loss.Cause)
					require.LessOrEqual(s, loss.At.Sub(began), 300*time.Millisecond)
					_, err := h.Multi(s.Context(), session.OpSet{Path: dirs[0], Version: -1})
					require.ErrorIs(s, err, zklock.ErrNodeDeleted)
					for j, dir := range dirs {
						if j != i {
							require.Len(s, s.Server.Children(dir), 1, "until Unlock it keeps the others")
						}
					}
					require.ErrorIs(s, h.Unlock(), zklock.ErrNodeDeleted)
					emptyAll(s, time.Second, dirs)
					s.Unlock(takeAll(s, other.MultiLock(dirs)))
				})
			})
		}
	}
}

// Another client deletes one place before the release, and the deletion of the other is not answered before the release's ctx ends:
// Unlock does not say that both are gone, also when it can't tell who has deleted the first. The deletion goes on.
func TestAMultiLocksReleaseThatLeavesAPlaceBehindSaysSo(t *testing.T) {
	for name, arrives := range map[string]bool{"its transaction is refused": true, "its transaction is lost": false} {
		for i := range 2 {
			t.Run(fmt.Sprintf("%s, %d", name, i), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dirs, c := dirs(s, 2), s.Client()
					h := takeAll(s, c.MultiLock(dirs))
					if !arrives {
						s.Server.Inject(fault.CloseBefore().Op(fault.OpMulti).Once())
					}
					require.NoError(s, s.Server.Delete(h.Nodes()[i]))
					held := s.Server.Inject(fault.Hold().Op(fault.OpDelete).Path(h.Nodes()[1-i]))
					err := h.Unlock()
					require.Len(s, s.Server.Children(dirs[1-i]), 1)
					if arrives { // else its own transaction may have deleted it
						require.ErrorIs(s, err, zklock.ErrNodeDeleted)
					}
					held.Remove()
					emptyAll(s, 5*time.Second, dirs)
				})
			})
		}
	}
}

// A waiter is first in one of its queues. Its znode there is deleted, and another client takes that lock, just before the
// waiter's other locks become free.
func TestAMultiLockDoesNotBeginWithAZnodeThatIsGone(t *testing.T) {
	for _, waited := range []time.Duration{400 * time.Millisecond, locktest.LongTime} {
		t.Run(waited.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, c, other := dirs(s, 2), s.Client(), s.Client()
				h := s.Lock(other.Mutex(dirs[0]))
				call := locktest.Go(s.Context(), c.MultiLock(dirs).Lock)
				time.Sleep(waited)
				stuck := s.Server.Inject(fault.HoldReply().Op(fault.OpNotify).Session(c.SessionID()))
				require.NoError(s, s.Server.Delete(dirs[1]+"/"+s.Server.Children(dirs[1])[0]))
				usurper := s.Lock(other.Mutex(dirs[1]))
				s.Unlock(h)
				stuck.Remove() // now it is notified of both at once
				require.False(s, call.Over(), "somebody else holds %s", path.Base(dirs[1]))
				s.Unlock(usurper)
				ownedAll(s, c, call.Get(s), dirs...)
			})
		})
	}
}

// The directories are deleted while a MultiLock waits: it makes them again and queues again.
func TestAWaitingMultiLockWhoseDirectoriesAreDeletedMakesThemAgain(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, c, other := dirs(s, 3), s.Client(), s.Client()
				h := s.Lock(other.Mutex(dirs[1]))
				call := locktest.Go(s.Context(), c.MultiLock(dirs).Lock)
				time.Sleep(time.Second)
				s.RemoveDir(dirs[i], true)
				time.Sleep(time.Second)
				if i != 1 {
					require.False(s, call.Over())
					s.Unlock(h)
				} else {
					s.Until(time.Second, "the holder hears of it", func() bool { return errors.Is(h.Err(), zklock.ErrNodeDeleted) })
				}
				got := call.Get(s)
				if i == 1 && got.Err() != nil { // its znode there was deleted after the holder's: in between it held
					require.ErrorIs(s, got.Err(), zklock.ErrNodeDeleted)
					require.ErrorIs(s, got.Unlock(), zklock.ErrNodeDeleted) // of the others
					got = takeAll(s, c.MultiLock(dirs))
				}
				ownedAll(s, c, got, dirs...)
			})
		})
	}
}

func TestAMultiLockThatMayNotReadItsZnodesHoldsNoneThatWasDeletedWhileItWaited(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		da, db, a, b, c := s.Dir("/locks/a"), s.Dir("/locks/b"), s.Client(), s.Client(), s.Client()
		h := s.Lock(a.Mutex(da))
		blind := b.MultiLock([]string{da, db}, zklock.WithACL(zk.ACL{Perms: zk.PermAll &^ zk.PermRead, Scheme: "world", ID: "anyone"}))
		call := locktest.Go(s.Context(), blind.Lock)
		synctest.Wait()
		require.False(s, call.Over())
		require.NoError(s, s.Server.Delete(db+"/"+locktest.Contenders(s.Server.Children(db))[0]))
		other := s.Lock(c.Mutex(db))
		s.Unlock(h)
		synctest.Wait()
		require.False(s, call.Over() && other.Err() == nil, "two hold %s: %v", db, other.Err())
	})
}
