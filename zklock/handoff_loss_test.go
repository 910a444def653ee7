package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestAfterALossTheNextInTheProcessHasAnotherZnode(t *testing.T) {
	for name, c := range map[string]struct {
		opts []zklock.LockOption
		lose func(s *sim, c *simClient, h *zklock.Hold)
		want error
	}{
		"max hold":        {[]zklock.LockOption{zklock.WithMaxHold(time.Second)}, func(*sim, *simClient, *zklock.Hold) {}, zklock.ErrMaxHold},
		"znode deleted":   {nil, func(s *sim, _ *simClient, h *zklock.Hold) { require.NoError(s, s.srv.Delete(h.Node())) }, zklock.ErrNodeDeleted},
		"broken by admin": {nil, func(s *sim, c *simClient, h *zklock.Hold) { require.NoError(s, c.Break(s.Context(), "/l", h.Token())) }, zklock.ErrNodeDeleted},
		"directory gone":  {nil, func(s *sim, _ *simClient, _ *zklock.Hold) { s.remove("/l", true) }, zklock.ErrNodeDeleted},
		"session expired": {nil, func(s *sim, c *simClient, _ *zklock.Hold) { require.NoError(s, s.srv.Expire(c.id())) }, zklock.ErrLost},
		"server is away": {nil, func(s *sim, _ *simClient, _ *zklock.Hold) {
			s.srv.Leader().Down()
			time.Sleep(30 * time.Second)
			s.srv.Leader().Up()
		}, zklock.ErrLeaseOver},
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				client := s.client()
				m := client.Mutex("/l", append(c.opts, zklock.WithLocalHandoff(5), zklock.WithIdleKeep(time.Second))...)
				first := s.lock(m)
				calls := s.inLine(m, 4)
				s.unlock(first)
				h := calls[0].get(s)
				require.Equal(s, first.Token(), h.Token())
				c.lose(s, client, h)
				require.ErrorIs(s, apiEnd(h), c.want)
				lost := time.Now()
				next := calls[1].get(s)
				require.False(s, calls[1].at.Before(lost), "not before the one that was lost had ended")
				require.ErrorIs(s, h.Unlock(s.Context()), c.want)
				require.ErrorIs(s, h.Check(s.Context()), c.want)
				require.Greater(s, next.Token(), h.Token())
				s.owned(client, next)
				s.unlock(next)
				last := calls[2].get(s)
				require.Equal(s, next.Token(), last.Token())
				s.unlock(last)
				s.unlock(calls[3].get(s))
				time.Sleep(2 * time.Second)
				s.clean("/l")
			})
		})
	}
}

func TestAKeptTurnThatIsLostIsNotLockedAgain(t *testing.T) {
	for name, lose := range map[string]func(s *sim, c *simClient, h *zklock.Hold){
		"znode deleted":   func(s *sim, _ *simClient, h *zklock.Hold) { require.NoError(s, s.srv.Delete(h.Node())) },
		"session expired": func(s *sim, c *simClient, _ *zklock.Hold) { require.NoError(s, s.srv.Expire(c.id())) },
		"lease over": func(s *sim, _ *simClient, _ *zklock.Hold) {
			in := s.srv.Inject(zktest.Freeze())
			time.Sleep(15 * time.Second)
			in.Remove()
		},
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				c := s.client()
				m := c.Mutex("/l", zklock.WithLocalHandoff(5), zklock.WithIdleKeep(time.Minute))
				h := s.lock(m)
				s.unlock(h)
				time.Sleep(time.Second)
				lose(s, c, h)
				synctest.Wait()
				next := s.lock(m)
				require.Greater(s, next.Token(), h.Token())
				s.owned(c, next)
			})
		})
	}
}

// The server is cut off, and nobody knows whether the session lives: the lock is handed on as long as the lease lasts, and
// not a moment longer.
func TestNobodyIsHandedALockWhoseLeaseIsOver(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"nothing passes": zktest.Freeze(), "replies do not": zktest.FreezeReplies(), "requests do not": zktest.FreezeRequests(),
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				c := s.client()
				m := c.Mutex("/l", zklock.WithLocalHandoff(5))
				h := s.lock(m)
				calls := s.inLine(m, 400)
				time.Sleep(time.Second)
				in := s.srv.Inject(fault.Session(c.id()))
				token, handed := h.Token(), 0
				for _, call := range calls {
					time.Sleep(50 * time.Millisecond)
					if h.Err() != nil {
						break
					}
					require.True(s, time.Now().Before(h.SafeUntil()))
					s.unlock(h)
					if !call.over() {
						break
					}
					h = call.get(s)
					require.NoError(s, h.Err())
					require.Equal(s, token, h.Token())
					handed++
				}
				require.Greater(s, handed, 50, "it is handed on while the lease lasts")
				until := h.SafeUntil()
				require.ErrorIs(s, apiEnd(h), zklock.ErrLost)
				require.False(s, time.Now().After(until))
				in.Remove()
				for _, call := range calls[handed:] {
					<-call.done
					if call.err == nil {
						require.Greater(s, call.hold.Token(), token)
						s.unlock(call.hold)
					}
				}
				s.clean("/l")
			})
		})
	}
}

func TestACancelledWaiterDoesNotCostTheOthersTheirPlace(t *testing.T) {
	simTest(t, func(s *sim) {
		other := s.client()
		outside := s.lock(other.Mutex("/l"))
		c := s.client()
		m := c.Mutex("/l", zklock.WithLocalHandoff(5))
		ctx, cancel := context.WithCancel(s.Context())
		first := simGo(ctx, m.Lock)
		synctest.Wait()
		calls := s.inLine(m, 2)
		place := contenders(s.srv.Children("/l"))
		require.Len(s, place, 2)
		late := s.inLine(other.Mutex("/l"), 1)[0]
		cancel()
		require.True(s, first.over())
		require.ErrorIs(s, first.err, context.Canceled)
		require.ErrorContains(s, first.err, "2nd in line behind")
		require.Equal(s, place, contenders(s.srv.Children("/l"))[:2], "the process kept its place in line")
		s.unlock(outside)
		s.unlock(calls[0].get(s))
		s.unlock(calls[1].get(s))
		s.unlock(late.get(s))
		s.clean("/l")
	})
}

func TestWhenTheLastWaiterGoesTheZnodeGoes(t *testing.T) {
	simTest(t, func(s *sim) {
		other := s.client()
		outside := s.lock(other.Mutex("/l"))
		c := s.client()
		before := simGoroutines()
		m := c.Mutex("/l", zklock.WithLocalHandoff(5), zklock.WithIdleKeep(time.Minute))
		for round := range 10 {
			ctx, cancel := context.WithCancel(s.Context())
			var calls []*simCall
			for range 100 {
				calls = append(calls, simGo(ctx, m.Lock))
			}
			time.Sleep(time.Duration(round) * 50 * time.Millisecond) // from before its create to after it watches
			cancel()
			for _, w := range calls {
				require.True(s, w.over())
				require.ErrorIs(s, w.err, context.Canceled)
			}
			require.Len(s, s.srv.Children("/l"), 1, "round %d", round)
			require.Empty(s, s.watched(c.id()))
			require.Zero(s, zklock.LocalQueues(c.Client))
			require.Equal(s, before, simGoroutines())
			_, err := m.TryLock(s.Context())
			require.ErrorIs(s, err, zklock.ErrBusy)
		}
		s.unlock(outside)
		h, err := m.TryLock(s.Context())
		require.NoError(s, err)
		s.unlock(h)
	})
}

// A waiter that comes when the last one has just left must not be left without anybody who queues for it.
func TestAWaiterThatComesAsTheLastOneLeaves(t *testing.T) {
	simTest(t, func(s *sim) {
		outside := s.lock(s.client().Mutex("/l"))
		m := s.client().Mutex("/l", zklock.WithLocalHandoff(5))
		for range 50 {
			ctx, cancel := context.WithCancel(s.Context())
			first := simGo(ctx, m.Lock)
			synctest.Wait()
			ctx2, cancel2 := context.WithCancel(s.Context())
			cancel()
			second := simGo(ctx2, m.Lock)
			require.True(s, first.over())
			require.False(s, second.over())
			require.Len(s, s.srv.Children("/l"), 2)
			cancel2()
			require.True(s, second.over())
		}
		w := simGo(s.Context(), m.Lock)
		s.unlock(outside)
		s.unlock(w.get(s))
		s.clean("/l")
	})
}

func TestCloseWithALocalQueue(t *testing.T) {
	for name, kept := range map[string]bool{"held": false, "kept": true} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				c := s.client()
				m := c.Mutex("/l", zklock.WithLocalHandoff(5), zklock.WithIdleKeep(time.Minute))
				h := s.lock(m)
				calls := s.inLine(m, 5)
				queued := s.lock(s.client().Mutex("/q"))
				calls = append(calls, s.inLine(c.Mutex("/q", zklock.WithLocalHandoff(1)), 3)...)
				if kept {
					for _, w := range calls[:5] {
						s.unlock(h)
						h = w.get(s)
					}
					s.unlock(h)
					calls = calls[5:]
				}
				require.NoError(s, c.Close())
				if !kept {
					require.ErrorIs(s, h.Err(), zklock.ErrClosed)
				}
				for _, w := range calls {
					require.True(s, w.over())
					require.ErrorIs(s, w.err, zklock.ErrClosed)
				}
				for _, try := range []func(context.Context) (*zklock.Hold, error){m.Lock, m.TryLock} {
					_, err := try(s.Context())
					require.ErrorIs(s, err, zklock.ErrClosed)
				}
				s.unlock(queued)
				s.clean("/l")
				s.clean("/q")
				require.Zero(s, zklock.LocalQueues(c.Client))
			})
		})
	}
}

func TestARefusalGoesToAllWhoWait(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		m := c.Mutex("/l", zklock.WithLocalHandoff(5))
		in := s.srv.Inject(zktest.HoldReply().Op(zktest.OpCreate).Once())
		s.srv.Inject(zktest.Answer(zktest.CodeNoAuth).Op(zktest.OpCreate).Path("/l/*"))
		var calls []*simCall
		for range 5 {
			calls = append(calls, simGo(s.Context(), m.Lock))
		}
		synctest.Wait()
		in.Remove()
		for _, w := range calls {
			require.True(s, w.over())
			require.ErrorIs(s, w.err, zk.ErrNoAuth)
		}
		require.Zero(s, zklock.LocalQueues(c.Client))
		_, err := c.Mutex("/l", zklock.WithLocalHandoff(5)).TryLock(s.Context())
		require.ErrorIs(s, err, zk.ErrNoAuth)

		s.unlock(s.lock(c.Mutex("/s")))
		sem := s.client().Semaphore("/sem", 1)
		h, err := sem.Acquire(s.Context(), 1)
		require.NoError(s, err)
		require.NoError(s, h.Err())
	})
}

func TestLostRepliesUnderALocalQueue(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpDelete, zktest.OpSetWatches, zktest.OpGetChildren2} {
		for _, fault := range []zktest.Fault{zktest.CloseAfter(), zktest.CloseBefore()} {
			for nth := 1; nth <= 3; nth++ {
				simTest(t, func(s *sim) {
					c, other := s.client(), s.client()
					m := c.Mutex(s.dir("/l"), zklock.WithLocalHandoff(2), zklock.WithIdleKeep(time.Second))
					s.srv.Inject(fault.Op(op).Session(c.id()).Nth(nth))
					for range 3 {
						h := s.lock(m)
						calls := append(s.inLine(m, 4), s.inLine(other.Mutex("/l"), 1)...)
						s.unlock(h)
						s.drain(calls)
						time.Sleep(5 * time.Second)
					}
					s.clean("/l")
					require.Zero(s, zklock.LocalQueues(c.Client))
				})
			}
		}
	}
}

// The note of the lock delay is made once for a znode, and goes with it: handing on inside the process costs nothing, and
// a loss delays those inside as it does others.
func TestLockDelayUnderALocalQueue(t *testing.T) {
	simTest(t, func(s *sim) {
		delay := zklock.WithLockDelay(10 * time.Second)
		c := s.client()
		m := c.Mutex("/l", zklock.WithLocalHandoff(50), delay)
		h := s.lock(m)
		calls := s.inLine(m, 5)
		before := s.asked()
		s.unlock(h)
		for _, w := range calls[:3] {
			h = w.get(s)
			s.unlock(h)
		}
		h = calls[3].get(s)
		require.Equal(s, before, s.asked())
		start := time.Now()
		require.NoError(s, s.srv.Delete(h.Node()))
		next := calls[4].get(s)
		require.Equal(s, 10*time.Second, time.Since(start))
		require.Greater(s, next.Token(), h.Token())
		s.unlock(next)
		start = time.Now()
		s.unlock(s.lock(s.client().Mutex("/l", delay)))
		require.Zero(s, time.Since(start), "released, not lost")
		short := c.Mutex("/l", zklock.WithLocalHandoff(50), delay, zklock.WithMaxHold(time.Second))
		h = s.lock(short)
		w := s.inLine(m, 1)[0]
		require.ErrorIs(s, apiEnd(h), zklock.ErrMaxHold)
		start = time.Now()
		s.unlock(w.get(s))
		require.Equal(s, 10*time.Second, time.Since(start))
		s.clean("/l")
	})
}

func TestMultiAndCheckOfAHandedOnHold(t *testing.T) {
	simTest(t, func(s *sim) {
		m := s.client().Mutex("/l", zklock.WithLocalHandoff(50))
		first := s.lock(m)
		calls := s.inLine(m, 3)
		s.unlock(first)
		h := calls[0].get(s)
		require.NoError(s, h.Check(s.Context()))
		_, err := h.Multi(s.Context(), &zk.CreateRequest{Path: "/a", Acl: siteWorld})
		require.NoError(s, err)
		_, err = first.Multi(s.Context(), &zk.CreateRequest{Path: "/b", Acl: siteWorld})
		require.ErrorIs(s, err, zklock.ErrUnlocked)
		require.ErrorIs(s, first.Check(s.Context()), zklock.ErrUnlocked)
		_, ok := s.srv.Node("/b")
		require.False(s, ok)
		s.unlock(h)
		h = calls[1].get(s)
		require.Equal(s, first.Token(), h.Token(), "a Multi that was answered is no reason to give the znode up")
		require.NoError(s, s.srv.Delete(h.Node()))
		_, err = h.Multi(s.Context(), &zk.CreateRequest{Path: "/c", Acl: siteWorld})
		require.ErrorIs(s, err, zklock.ErrNodeDeleted)
		last := calls[2].get(s)
		require.Greater(s, last.Token(), h.Token())
		s.unlock(last)
		s.clean("/l")
	})
}

// A Multi that is under way when the hold is released, or whose outcome is unknown, could be carried out while the next
// hold has the znode that it checks. So the next hold gets another znode.
func TestAZnodeThatAMultiMayStillCheckIsNotHandedOn(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{"under way": zktest.Hold(), "reply lost": zktest.CloseAfter()} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				c := s.client()
				m := c.Mutex("/l", zklock.WithLocalHandoff(50), zklock.WithIdleKeep(time.Minute))
				h := s.lock(m)
				w := s.inLine(m, 1)[0]
				in := s.srv.Inject(fault.Op(zktest.OpMulti).Once())
				done := make(chan error, 1)
				go func() {
					_, err := h.Multi(s.Context(), &zk.CreateRequest{Path: "/a", Acl: siteWorld})
					done <- err
				}()
				<-in.Hit()
				synctest.Wait()
				unlocked := make(chan error, 1)
				go func() { unlocked <- h.Unlock(s.Context()) }()
				synctest.Wait()
				in.Remove()
				require.NoError(s, <-unlocked)
				if err := <-done; name == "reply lost" {
					require.ErrorIs(s, err, zklock.ErrUnknownOutcome)
				} else {
					require.NoError(s, err)
				}
				require.Greater(s, w.get(s).Token(), h.Token())
			})
		})
	}
}
