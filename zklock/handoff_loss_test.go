package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/zktest/fault"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

func TestAfterALossTheNextInTheProcessHasAnotherZnode(t *testing.T) {
	for name, c := range map[string]struct {
		opts []zklock.LockOption
		lose func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold)
		want error
	}{
		"max hold": {[]zklock.LockOption{zklock.WithMaxHold(time.Second)}, func(*locktest.Sim, *locktest.Client, *zklock.Hold) {}, zklock.ErrMaxHold},
		"znode deleted": {nil, func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) {
			require.NoError(s, s.Server.Delete(h.Node()))
		}, zklock.ErrNodeDeleted},
		"broken by admin": {nil, func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			require.NoError(s, admin.Evict(s.Context(), c.Client, "/l", h.Token()))
		}, zklock.ErrNodeDeleted},
		"directory gone": {nil, func(s *locktest.Sim, _ *locktest.Client, _ *zklock.Hold) { s.RemoveDir("/l", true) }, zklock.ErrNodeDeleted},
		"session expired": {nil, func(s *locktest.Sim, c *locktest.Client, _ *zklock.Hold) {
			require.NoError(s, s.Server.Expire(c.SessionID()))
		}, zklock.ErrLost},
		"server is away": {nil, func(s *locktest.Sim, _ *locktest.Client, _ *zklock.Hold) {
			s.Server.Leader().Down()
			time.Sleep(30 * time.Second)
			s.Server.Leader().Up()
		}, zklock.ErrLeaseOver},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				client := s.Client()
				m := client.Mutex("/l", append(c.opts, zklock.WithHandoffs(5))...)
				first := s.Lock(m)
				calls := inLine(s, m, 4)
				s.Unlock(first)
				h := calls[0].Get(s)
				require.Equal(s, first.Token(), h.Token())
				c.lose(s, client, h)
				require.ErrorIs(s, locktest.End(h), c.want)
				lost := time.Now()
				next := calls[1].Get(s)
				require.False(s, calls[1].At.Before(lost), "not before the one that was lost had ended")
				require.ErrorIs(s, h.Unlock(), c.want)
				require.ErrorIs(s, h.Check(s.Context()), c.want)
				require.Greater(s, next.Token(), h.Token())
				s.Owned(client, next)
				s.Unlock(next)
				last := calls[2].Get(s)
				require.Equal(s, next.Token(), last.Token())
				s.Unlock(last)
				s.Unlock(calls[3].Get(s))
				time.Sleep(2 * time.Second)
				clean(s, "/l")
			})
		})
	}
}

// The server is cut off, so the client does not know whether its session exists: the lock is handed on until the lease is over, and
// not afterwards.
func TestALockWhoseLeaseIsOverIsNotHandedOn(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"nothing passes": fault.Freeze(), "replies do not": fault.FreezeReplies(), "requests do not": fault.FreezeRequests(),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				m := c.Mutex("/l", zklock.WithHandoffs(5))
				h := s.Lock(m)
				calls := inLine(s, m, 400)
				time.Sleep(time.Second)
				in := s.Server.Inject(failure.Session(c.SessionID()))
				token, handed := h.Token(), 0
				for _, call := range calls {
					time.Sleep(50 * time.Millisecond)
					if h.Err() != nil {
						break
					}
					require.True(s, time.Now().Before(h.SafeUntil()))
					s.Unlock(h)
					if !call.Over() {
						break
					}
					h = call.Get(s)
					require.NoError(s, h.Err())
					require.Equal(s, token, h.Token())
					handed++
				}
				require.Greater(s, handed, 50, "it is handed on while the lease lasts")
				until := h.SafeUntil()
				require.ErrorIs(s, locktest.End(h), zklock.ErrLost)
				require.False(s, time.Now().After(until))
				in.Remove()
				for _, call := range calls[handed:] {
					<-call.Done
					if call.Err == nil {
						require.Greater(s, call.Hold.Token(), token)
						s.Unlock(call.Hold)
					}
				}
				clean(s, "/l")
			})
		})
	}
}

func TestACancelledWaiterDoesNotCostTheOthersTheirPlace(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		other := s.Client()
		outside := s.Lock(other.Mutex("/l"))
		c := s.Client()
		m := c.Mutex("/l", zklock.WithHandoffs(5))
		ctx, cancel := context.WithCancel(s.Context())
		first := locktest.Go(ctx, m.Lock)
		synctest.Wait()
		calls := inLine(s, m, 2)
		place := locktest.Contenders(s.Server.Children("/l"))
		require.Len(s, place, 2)
		late := inLine(s, other.Mutex("/l"), 1)[0]
		cancel()
		require.True(s, first.Over())
		require.ErrorIs(s, first.Err, context.Canceled)
		require.ErrorContains(s, first.Err, "2nd in line behind")
		require.Equal(s, place, locktest.Contenders(s.Server.Children("/l"))[:2], "the process kept its place in line")
		s.Unlock(outside)
		s.Unlock(calls[0].Get(s))
		s.Unlock(calls[1].Get(s))
		s.Unlock(late.Get(s))
		clean(s, "/l")
	})
}

func TestWhenTheLastWaiterGoesTheZnodeGoes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		other := s.Client()
		outside := s.Lock(other.Mutex("/l"))
		c := s.Client()
		before := locktest.Goroutines()
		m := c.Mutex("/l", zklock.WithHandoffs(5))
		for round := range 10 {
			ctx, cancel := context.WithCancel(s.Context())
			var calls []*locktest.Call
			for range 100 {
				calls = append(calls, locktest.Go(ctx, m.Lock))
			}
			time.Sleep(time.Duration(round) * 50 * time.Millisecond) // from before its create until it watches
			cancel()
			for _, w := range calls {
				require.True(s, w.Over())
				require.ErrorIs(s, w.Err, context.Canceled)
			}
			require.Len(s, s.Server.Children("/l"), 1, "round %d", round)
			require.Empty(s, s.Watched(c.SessionID()))
			require.Zero(s, zklock.LocalQueues(c.Client))
			require.Equal(s, before, locktest.Goroutines())
			_, _, err := m.TryLock(s.Context())
			require.ErrorIs(s, err, zklock.ErrBusy)
		}
		s.Unlock(outside)
		_, h, err := m.TryLock(s.Context())
		require.NoError(s, err)
		s.Unlock(h)
	})
}

// A waiter that comes when the last one has just left must not be left without a goroutine that queues for it.
func TestAWaiterThatComesAsTheLastOneLeaves(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		outside := s.Lock(s.Client().Mutex("/l"))
		m := s.Client().Mutex("/l", zklock.WithHandoffs(5))
		for range 50 {
			ctx, cancel := context.WithCancel(s.Context())
			first := locktest.Go(ctx, m.Lock)
			synctest.Wait()
			ctx2, cancel2 := context.WithCancel(s.Context())
			cancel()
			second := locktest.Go(ctx2, m.Lock)
			require.True(s, first.Over())
			require.False(s, second.Over())
			require.Len(s, s.Server.Children("/l"), 2)
			cancel2()
			require.True(s, second.Over())
		}
		w := locktest.Go(s.Context(), m.Lock)
		s.Unlock(outside)
		s.Unlock(w.Get(s))
		clean(s, "/l")
	})
}

func TestCloseWithALocalQueue(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.Mutex("/l", zklock.WithHandoffs(5))
		h := s.Lock(m)
		calls := inLine(s, m, 5)
		queued := s.Lock(s.Client().Mutex("/q"))
		calls = append(calls, inLine(s, c.Mutex("/q", zklock.WithHandoffs(1)), 3)...)
		require.NoError(s, c.Close())
		require.ErrorIs(s, h.Err(), zklock.ErrClosed)
		for _, w := range calls {
			require.True(s, w.Over())
			require.ErrorIs(s, w.Err, zklock.ErrClosed)
		}
		for _, try := range []locktest.Acquire{m.Lock, m.TryLock} {
			_, _, err := try(s.Context())
			require.ErrorIs(s, err, zklock.ErrClosed)
		}
		s.Unlock(queued)
		clean(s, "/l")
		clean(s, "/q")
		require.Zero(s, zklock.LocalQueues(c.Client))
	})
}

func TestARefusalGoesToAllWhoWait(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.Mutex("/l", zklock.WithHandoffs(5))
		in := s.Server.Inject(fault.HoldReply().Op(fault.OpCreate).Once())
		s.Server.Inject(fault.Answer(fault.CodeNoAuth).Op(fault.OpCreate).Path("/l/*"))
		var calls []*locktest.Call
		for range 5 {
			calls = append(calls, locktest.Go(s.Context(), m.Lock))
		}
		synctest.Wait()
		in.Remove()
		for _, w := range calls {
			require.True(s, w.Over())
			require.ErrorIs(s, w.Err, zk.ErrNoAuth)
		}
		require.Zero(s, zklock.LocalQueues(c.Client))
		_, _, err := c.Mutex("/l", zklock.WithHandoffs(5)).TryLock(s.Context())
		require.ErrorIs(s, err, zk.ErrNoAuth)
	})
}
