package zklock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Who stands in line, and how an administrator removes him.

// lineOf returns the line of path in short: "mutex!" for a holder, "mutex" for a waiter.
func (s *sim) lineOf(c *simClient, path string) (line []string) {
	s.Helper()
	synctest.Wait()
	all, err := c.Queue(s.Context(), path)
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
	simTest(t, func(s *sim) {
		c, ctx := s.client(), s.Context()
		require.Empty(s, s.lineOf(c, "/missing"))
		m := s.lock(c.Mutex("/m", zklock.WithOwner("first"), zklock.WithData([]byte("data"))))
		simGo(ctx, c.Mutex("/m", zklock.WithOwner("second")).Lock)
		require.Equal(s, []string{"mutex!", "mutex"}, s.lineOf(c, "/m"))
		line, err := c.Queue(ctx, "/m")
		require.NoError(s, err)
		require.Equal(s, m.Node(), line[0].Node)
		require.Equal(s, m.Token(), line[0].Token)
		require.Equal(s, "first", line[0].Owner)
		require.Equal(s, "data", string(line[0].Data))
		require.Equal(s, c.id(), line[0].Session)
		require.Equal(s, time.Now().UnixMilli(), line[0].Since.UnixMilli())
		require.Equal(s, "second", line[1].Owner)
		require.Greater(s, line[1].Token, line[0].Token)

		for range 2 {
			_, err := c.RWMutex("/rw").RLock(ctx)
			require.NoError(s, err)
		}
		simGo(ctx, c.RWMutex("/rw").Lock)
		synctest.Wait()
		simGo(ctx, c.RWMutex("/rw").RLock)
		require.Equal(s, []string{"read!", "read!", "write", "read"}, s.lineOf(c, "/rw"))

		_, err = c.Semaphore("/s", 4).Acquire(ctx, 3)
		require.NoError(s, err)
		big := simGo(ctx, func(ctx context.Context) (*zklock.Hold, error) { return c.Semaphore("/s", 4).Acquire(ctx, 2) })
		require.False(s, big.over())
		simGo(ctx, func(ctx context.Context) (*zklock.Hold, error) { return c.Semaphore("/s", 4).Acquire(ctx, 1) })
		require.Equal(s, []string{"semaphore 3!", "semaphore 2", "semaphore 1"}, s.lineOf(c, "/s"))
		s.lead(c.Election("/e"), "v")
		require.Equal(s, []string{"election!"}, s.lineOf(c, "/e"))
		_, err = c.Queue(ctx, "/")
		require.ErrorIs(s, err, zklock.ErrPath)
		require.NoError(s, c.Close()) // ends those who wait
	})
}

func TestQueueShowsForeignClientsAndWhatTheirNamesTell(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c, other := s.dir("/l"), s.client(), s.stranger()
		for i, data := range []string{"curator-host", `{"no":"identity"}`, "\x00\x01"} {
			_, err := other.Create(s.Context(), fmt.Sprintf("%s/_c_%d-lock-%010d", dir, i, i), []byte(data), session.Ephemeral, session.WorldACL())
			require.NoError(s, err)
		}
		s.place(other, dir+"/not-a-contender")
		_, err := other.Create(s.Context(), dir+"/x-lock-0000000003", []byte("secret"), session.Ephemeral, zk.WorldACL(zk.PermWrite|zk.PermDelete))
		require.NoError(s, err)
		s.srv.Inject(zktest.Answer(zktest.CodeNoNode).Op(zktest.OpGetData).Path(dir + "/_c_1-*")) // gone since the list
		line, err := c.Queue(s.Context(), dir)
		require.NoError(s, err)
		require.Len(s, line, 3)
		require.Equal(s, "curator-host", line[0].Owner)
		require.Equal(s, "curator-host", string(line[0].Data))
		require.True(s, line[0].Holds)
		require.Equal(s, other.ID(), line[0].Session)
		require.Empty(s, line[1].Owner, "nothing that a terminal could stumble over")
		require.Equal(s, "\x00\x01", string(line[1].Data))
		require.Equal(s, zklock.Contender{Node: dir + "/x-lock-0000000003", Kind: "mutex"}, line[2], "unreadable: what its name tells")
		require.ErrorIs(s, c.Break(s.Context(), dir, 0), zklock.ErrNotHeld, "the token that it seems to have is nobody's")
		require.ErrorIs(s, c.Break(s.Context(), dir, -1), zklock.ErrNotHeld)
		require.Len(s, s.srv.Children(dir), 5)
	})
}

// A semaphore whose directory goes between the list and the read of its size has nobody in line.
func TestQueueOfADirectoryThatGoesMeanwhile(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		h, err := c.Semaphore("/s", 2).Acquire(s.Context(), 1)
		require.NoError(s, err)
		s.srv.Inject(zktest.Answer(zktest.CodeNoNode).Op(zktest.OpGetData).Path("/s"))
		line, err := c.Queue(s.Context(), "/s")
		require.NoError(s, err)
		require.Empty(s, line)
		s.unlock(h)
	})
}

func TestBreakRemovesTheRightContenderAndItsHolderHearsOfIt(t *testing.T) {
	for _, held := range []time.Duration{0, time.Minute} {
		t.Run(held.String(), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a, b, admin := s.dir("/l"), s.client(), s.client(), s.client()
				h := s.lock(a.Mutex(dir))
				lost := lossOf(h)
				first, second := simGo(s.Context(), b.Mutex(dir).Lock), (*simCall)(nil)
				require.False(s, first.over())
				second = simGo(s.Context(), b.Mutex(dir).Lock)
				require.False(s, second.over())
				time.Sleep(held)
				line, err := admin.Queue(s.Context(), dir)
				require.NoError(s, err)
				require.Len(s, line, 3)
				began := time.Now()
				require.NoError(s, admin.Break(s.Context(), dir, h.Token()))
				loss := <-lost
				require.Equal(s, zklock.ErrNodeDeleted, loss.cause)
				require.LessOrEqual(s, loss.at.Sub(began), time.Second)
				require.Equal(s, line[1].Token, first.get(s).Token())
				require.ErrorIs(s, admin.Break(s.Context(), dir, h.Token()), zklock.ErrNotHeld, "it is gone")
				require.ErrorIs(s, admin.Break(s.Context(), "/missing", h.Token()), zklock.ErrNotHeld)
				require.NoError(s, first.hold.Err())

				require.NoError(s, admin.Break(s.Context(), dir, line[2].Token), "a waiter")
				s.until(time.Second, "it queues again", func() bool { return len(s.srv.Children(dir)) == 2 })
				require.False(s, second.over())
				s.unlock(first.hold)
				require.Greater(s, second.get(s).Token(), line[2].Token)
				require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrNodeDeleted)
				s.unlock(second.hold)
			})
		})
	}
}

func TestBreakOfALeaderAndOfAMultiLock(t *testing.T) {
	simTest(t, func(s *sim) {
		dirs, c, admin := s.multiDirs(2), s.client(), s.client()
		l := s.lead(c.Election("/e"), "v")
		require.NoError(s, admin.Break(s.Context(), "/e", l.Token()))
		s.until(time.Second, "the leader hears of it", func() bool { return l.Err() != nil })
		require.ErrorIs(s, l.Err(), zklock.ErrNodeDeleted)
		h := s.multiTake(c.MultiLock(dirs))
		require.NoError(s, admin.Break(s.Context(), dirs[1], h.Token()))
		s.until(time.Second, "the holder hears of it", func() bool { return h.Err() != nil })
		require.ErrorIs(s, h.Err(), zklock.ErrNodeDeleted)
	})
}

// The reply to the deletion is lost: it is not known whether it was carried out, and the error says so.
func TestBreakWhoseReplyIsLostSaysThatItMayHaveBeenDone(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, admin := s.dir("/l"), s.client(), s.client()
		h := s.lock(a.Mutex(dir))
		s.srv.Inject(zktest.CloseAfter().Op(zktest.OpDelete).Session(admin.id()).Once())
		require.ErrorIs(s, admin.Break(s.Context(), dir, h.Token()), zklock.ErrUnknownOutcome)
		require.ErrorIs(s, admin.Break(s.Context(), dir, h.Token()), zklock.ErrNotHeld)
	})
}

// A reader that a writer became has one token, whoever tells it: its hold, Queue, and Break.
func TestADowngradedReaderIsShownAndBrokenByTheTokenOfItsHold(t *testing.T) {
	simTest(t, func(s *sim) {
		c, admin, ctx := s.client(), s.client(), s.Context()
		rw := c.RWMutex("/rw")
		w, err := rw.Lock(ctx)
		require.NoError(s, err)
		r, err := rw.Downgrade(ctx, w)
		require.NoError(s, err)
		line, err := admin.Queue(ctx, "/rw")
		require.NoError(s, err)
		require.Len(s, line, 1)
		require.Equal(s, r.Token(), line[0].Token)
		require.Equal(s, r.Node(), line[0].Node)

		// Somebody who claims the token of another one is not believed, and does not shield himself.
		victim := s.lock(c.Mutex("/m"))
		name := fmt.Sprintf("/m/x-0x%x-__READ__%s", int64(victim.Token()), victim.Node()[len(victim.Node())-10:])
		s.place(s.stranger(), name)
		line, err = admin.Queue(ctx, "/m")
		require.NoError(s, err)
		for _, k := range line {
			require.Equal(s, k.Node == victim.Node(), k.Token == victim.Token())
			if k.Node != victim.Node() {
				require.NoError(s, admin.Break(ctx, "/m", k.Token))
			}
		}
		require.NoError(s, victim.Err())

		require.NoError(s, admin.Break(ctx, "/rw", r.Token()))
		s.until(time.Second, "the holder hears of it", func() bool { return r.Err() != nil })
		require.ErrorIs(s, r.Err(), zklock.ErrNodeDeleted)
		require.ErrorIs(s, admin.Break(ctx, "/rw", r.Token()), zklock.ErrNotHeld)
		require.Equal(s, []string{"mutex!"}, s.lineOf(c, "/m"))
		s.unlock(victim)
	})
}

// Each contender is judged among those of its own family, wherever others stand.
func TestQueueJudgesEachContenderAmongItsOwnKind(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c, other := s.dir("/l"), s.client(), s.stranger()
		s.place(other, dir+"/x-lease-3-0000000000")
		s.place(other, dir+"/x-lock-0000000001")
		s.place(other, dir+"/x-__READ__0000000002")
		s.place(other, dir+"/x-lock-0000000003")
		s.place(other, dir+"/x-__WRIT__0000000004")
		s.place(other, dir+"/x-__READ__0000000005")
		require.Equal(s, []string{"semaphore 3", "mutex!", "read!", "mutex", "write", "read"}, s.lineOf(c, dir))
		page, err := c.QueuePage(s.Context(), dir, 1, 2)
		require.NoError(s, err)
		require.Equal(s, zklock.KindSemaphore, page.Kind)
		require.Equal(s, []int{2, 4, 1, 2}, []int{page.Holding, page.Waiting, page.From, len(page.Contenders)})
		require.Equal(s, zklock.KindMutex, page.Contenders[0].Kind)
		for _, from := range []int{6, 1000} {
			page, err = c.QueuePage(s.Context(), dir, from, 2)
			require.NoError(s, err)
			require.Empty(s, page.Contenders)
			require.Equal(s, 2, page.Holding)
		}
		page, err = c.QueuePage(s.Context(), dir, 0, 0)
		require.NoError(s, err)
		require.Empty(s, page.Contenders)
		_, err = c.QueuePage(s.Context(), dir, -1, 2)
		require.ErrorIs(s, err, zklock.ErrOption)
		_, err = c.QueuePage(s.Context(), dir, 0, -1)
		require.ErrorIs(s, err, zklock.ErrOption)
	})
}

// Curator's reader that stands under its own write lock holds with it; another session's does not.
func TestQueueShowsAReaderUnderItsOwnWriteLockAsAHolder(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c, own, other := s.dir("/l"), s.client(), s.stranger(), s.stranger()
		s.place(own, dir+"/_c_1-__WRIT__0000000001")
		s.place(own, dir+"/_c_2-__READ__0000000001")
		s.place(other, dir+"/_c_3-__READ__0000000001")
		s.place(other, dir+"/_c_4-__READ__0000000002")
		require.Equal(s, []string{"write!", "read!", "read", "read"}, s.lineOf(c, dir))
	})
}
