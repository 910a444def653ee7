package admin_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
	"github.com/zklock/locker/zktest/fault"
)

// Tests of Queue, ReadQueue and Evict.

// lineOf returns the line of path in short: "mutex!" for a holder, "mutex" for a waiter.
func lineOf(s *locktest.Sim, c *locktest.Client, path string) (line []string) {
	s.Helper()
	synctest.Wait()
	all, err := locktest.Queue(s.Context(), c.Client, path)
	require.NoError(s, err)
	for _, k := range all {
		short := string(k.Kind)
		if k.Permits > 0 {
			short += fmt.Sprint(" ", k.Permits)
		}
		if k.Holds {
			short += "!"
		}
		line = append(line, short)
	}
	return line
}

func TestQueueShowsWhoHoldsAndWhoWaitsOfEveryKind(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, ctx := s.Client(), s.Context()
		require.Empty(s, lineOf(s, c, "/missing"))
		m := s.Lock(c.Mutex("/m", zklock.WithOwner("first")))
		locktest.Go(ctx, c.Mutex("/m", zklock.WithOwner("second")).Lock)
		require.Equal(s, []string{"mutex!", "mutex"}, lineOf(s, c, "/m"))
		line, err := locktest.Queue(ctx, c.Client, "/m")
		require.NoError(s, err)
		require.Equal(s, m.Node(), line[0].Node)
		require.Equal(s, m.Token(), line[0].Token)
		require.Equal(s, "first", line[0].Owner)
		require.Equal(s, c.SessionID(), line[0].Session)
		require.Equal(s, time.Now().UnixMilli(), line[0].Since.UnixMilli())
		require.Equal(s, "second", line[1].Owner)
		require.Greater(s, line[1].Token, line[0].Token)

		for range 2 {
			_, _, err := c.RWMutex("/rw").RLock(ctx)
			require.NoError(s, err)
		}
		locktest.Go(ctx, c.RWMutex("/rw").Lock)
		synctest.Wait()
		locktest.Go(ctx, c.RWMutex("/rw").RLock)
		require.Equal(s, []string{"read!", "read!", "write", "read"}, lineOf(s, c, "/rw"))

		_, _, err = c.Semaphore("/s", 4).Acquire(ctx, 3)
		require.NoError(s, err)
		big := locktest.Go(ctx, func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			return c.Semaphore("/s", 4).Acquire(ctx, 2)
		})
		require.False(s, big.Over())
		locktest.Go(ctx, func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			return c.Semaphore("/s", 4).Acquire(ctx, 1)
		})
		require.Equal(s, []string{"semaphore 3!", "semaphore 2", "semaphore 1"}, lineOf(s, c, "/s"))
		s.Take(locktest.Campaign(c.Election("/e"), "v"))
		require.Equal(s, []string{"election!"}, lineOf(s, c, "/e"))
		_, err = locktest.Queue(ctx, c.Client, "/")
		require.ErrorIs(s, err, zklock.ErrPath)
		require.NoError(s, c.Close()) // ends the waiters
	})
}

func TestQueueShowsForeignClientsAndWhatTheirNamesTell(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, other := s.Dir("/l"), s.Client(), s.Stranger()
		for i, data := range []string{"curator-host", `{"no":"identity"}`, "\x00\x01"} {
			_, err := other.Create(s.Context(), fmt.Sprintf("%s/_c_%d-lock-%010d", dir, i, i),
				[]byte(data), session.Ephemeral, session.WorldACL())
			require.NoError(s, err)
		}
		s.Plant(other, dir+"/not-a-contender")
		_, err := other.Create(s.Context(), dir+"/x-lock-0000000003", []byte("secret"),
			session.Ephemeral, zk.WorldACL(zk.PermWrite|zk.PermDelete))
		require.NoError(s, err)
		// One was deleted since the list.
		s.Server.Inject(fault.Answer(fault.CodeNoNode).Op(fault.OpGetData).Path(dir + "/_c_1-*"))
		line, err := locktest.Queue(s.Context(), c.Client, dir)
		require.NoError(s, err)
		require.Len(s, line, 3)
		require.Equal(s, "curator-host", line[0].Owner)
		require.Equal(s, "curator-host", string(line[0].Data))
		require.True(s, line[0].Holds)
		require.Equal(s, other.ID(), line[0].Session)
		require.Empty(s, line[1].Owner, "nothing that a terminal could stumble over")
		require.Equal(s, "\x00\x01", string(line[1].Data))
		require.Equal(s, admin.Contender{Node: dir + "/x-lock-0000000003", Kind: "mutex"}, line[2],
			"unreadable: what its name tells")
		require.ErrorIs(s, admin.Evict(s.Context(), c.Client, dir, 0), zk.ErrNoNode,
			"the token that it seems to have is nobody's")
		require.ErrorIs(s, admin.Evict(s.Context(), c.Client, dir, -1), zk.ErrNoNode)
		require.Len(s, s.Server.Children(dir), 5)
	})
}

// A server that was the leader, and is cut off, does not know who is in line.
func TestBreakAsksAMajority(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, deposed := s.Dir("/l"), s.Follower()
		operator := s.ClientAt(deposed)
		deposed.Depose()
		h := s.Lock(s.Client().Mutex(dir))
		err := admin.Evict(s.Context(), operator.Client, dir, h.Token())
		require.ErrorIs(s, err, zklock.ErrLost)
		require.NotErrorIs(s, err, zk.ErrNoNode)
	})
}

// Such a server still lists a holder that has left.
func TestQueueAsksAMajority(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, deposed := s.Dir("/l"), s.Follower()
		h := s.Lock(s.Client().Mutex(dir))
		operator := s.ClientAt(deposed)
		deposed.Depose()
		s.Unlock(h)
		line, err := locktest.Queue(locktest.Within(s, 5*time.Second), operator.Client, dir)
		require.ErrorIs(s, err, context.DeadlineExceeded)
		require.Empty(s, line)
	})
}

// A semaphore whose directory is deleted between the list and the read of its size has an empty
// queue.
func TestQueueOfADirectoryThatGoesMeanwhile(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		_, h, err := c.Semaphore("/s", 2).Acquire(s.Context(), 1)
		require.NoError(s, err)
		s.Server.Inject(fault.Answer(fault.CodeNoNode).Op(fault.OpGetData).Path("/s"))
		line, err := locktest.Queue(s.Context(), c.Client, "/s")
		require.NoError(s, err)
		require.Empty(s, line)
		s.Unlock(h)
	})
}

func TestBreakRemovesTheRightContenderAndItsHolderHearsOfIt(t *testing.T) {
	for _, held := range []time.Duration{0, time.Minute} {
		t.Run(held.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b, operator := s.Dir("/l"), s.Client(), s.Client(), s.Client()
				h := s.Lock(a.Mutex(dir))
				lost := locktest.LossOf(h)
				first, second := locktest.Go(s.Context(), b.Mutex(dir).Lock), (*locktest.Call)(nil)
				require.False(s, first.Over())
				second = locktest.Go(s.Context(), b.Mutex(dir).Lock)
				require.False(s, second.Over())
				time.Sleep(held)
				line, err := locktest.Queue(s.Context(), operator.Client, dir)
				require.NoError(s, err)
				require.Len(s, line, 3)
				began := time.Now()
				require.NoError(s, admin.Evict(s.Context(), operator.Client, dir, h.Token()))
				loss := <-lost
				require.Equal(s, zklock.ErrNodeDeleted, loss.Cause)
				require.LessOrEqual(s, loss.At.Sub(began), time.Second)
				require.Equal(s, line[1].Token, first.Get(s).Token())
				require.ErrorIs(s, admin.Evict(s.Context(), operator.Client, dir, h.Token()),
					zk.ErrNoNode, "it is gone")
				tooLong := fmt.Sprintf("/%05000d", 0)
				require.ErrorIs(s, admin.Evict(s.Context(), operator.Client, tooLong, h.Token()),
					zk.ErrNoNode)
				require.NoError(s, first.Hold.Err())

				require.NoError(s, admin.Evict(s.Context(), operator.Client, dir, line[2].Token),
					"a waiter")
				s.Until(time.Second, "it queues again",
					func() bool { return len(s.Server.Children(dir)) == 2 })
				require.False(s, second.Over())
				s.Unlock(first.Hold)
				require.Greater(s, second.Get(s).Token(), line[2].Token)
				require.ErrorIs(s, h.Unlock(), zklock.ErrNodeDeleted)
				s.Unlock(second.Hold)
			})
		})
	}
}

// The reply to the deletion is lost, so its outcome is unknown, and the error says so.
func TestBreakWhoseReplyIsLostSaysThatItMayHaveBeenDone(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, operator := s.Dir("/l"), s.Client(), s.Client()
		h := s.Lock(a.Mutex(dir))
		s.Server.Inject(fault.CloseAfter().Op(fault.OpDelete).Session(operator.SessionID()).Once())
		require.ErrorIs(s, admin.Evict(s.Context(), operator.Client, dir, h.Token()),
			zklock.ErrUnknownOutcome)
		require.ErrorIs(s, admin.Evict(s.Context(), operator.Client, dir, h.Token()), zk.ErrNoNode)
	})
}

// Each contender is judged among those of its own family of kinds, wherever the others are in the
// list.
func TestQueueJudgesEachContenderAmongItsOwnKind(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, other := s.Dir("/l"), s.Client(), s.Stranger()
		s.Plant(other, dir+"/x-lease-3-0000000000")
		s.Plant(other, dir+"/x-lock-0000000001")
		s.Plant(other, dir+"/x-__READ__0000000002")
		s.Plant(other, dir+"/x-lock-0000000003")
		s.Plant(other, dir+"/x-__WRIT__0000000004")
		s.Plant(other, dir+"/x-__READ__0000000005")
		require.Equal(s, []string{"semaphore 3", "mutex!", "read!", "mutex", "write", "read"},
			lineOf(s, c, dir))
		page, err := admin.ReadQueue(s.Context(), c.Client, dir, 1, 2)
		require.NoError(s, err)
		require.Equal(s, "semaphore", page.Kind)
		require.Equal(s, []int{2, 4, 1, 2},
			[]int{page.Holding, page.Waiting, page.From, len(page.Contenders)})
		require.Equal(s, "mutex", page.Contenders[0].Kind)
		for _, from := range []int{6, 1000} {
			page, err = admin.ReadQueue(s.Context(), c.Client, dir, from, 2)
			require.NoError(s, err)
			require.Empty(s, page.Contenders)
			require.Equal(s, 2, page.Holding)
		}
		page, err = admin.ReadQueue(s.Context(), c.Client, dir, 0, 0)
		require.NoError(s, err)
		require.Empty(s, page.Contenders)
		_, err = admin.ReadQueue(s.Context(), c.Client, dir, -1, 2)
		require.ErrorIs(s, err, zklock.ErrInvalid)
		_, err = admin.ReadQueue(s.Context(), c.Client, dir, 0, -1)
		require.ErrorIs(s, err, zklock.ErrInvalid)
	})
}
