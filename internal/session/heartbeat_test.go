package session_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestASessionThatHoldsNothingAsksTheLeaderNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		time.Sleep(time.Hour)
		n := srv.Requests()
		require.Zero(t, n[fault.OpMulti])
		require.InDelta(t, 2160, n[fault.OpPing], 30, "a ping every sixth of 10 s")
		delete(n, fault.OpPing)
		delete(n, fault.OpConnect)
		require.Empty(t, n)
		require.NoError(t, s.Alive())
	})
}

func TestOneHeartbeatServesASessionHoweverManyHoldIt(t *testing.T) {
	for _, holders := range []int{1, 2, 1000} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			held := make([]*session.Retention, holders)
			node := ephemeral(t, s)
			for i := range held {
				held[i] = retain(t, s, node)
			}
			time.Sleep(1000 * time.Second) // a hundred timeouts
			n := srv.Requests()
			require.InDelta(t, 500, n[fault.OpMulti], 50, "%d holders: five a timeout", holders)
			require.InDelta(t, 1700, n[fault.OpPing], 300,
				"%d holders: a ping every twentieth of a timeout in between", holders)

			for _, r := range held[1:] {
				r.Release()
				r.Release() // which does no harm
			}
			time.Sleep(100 * time.Second)
			require.InDelta(t, 550, srv.Requests()[fault.OpMulti], 55, "one of %d holders is left",
				holders)
			held[0].Release()
			time.Sleep(time.Second)
			before := srv.Requests()[fault.OpMulti]
			time.Sleep(time.Hour)
			require.Equal(t, before, srv.Requests()[fault.OpMulti], "nobody holds")
		})
	}
}

func TestSafeUntilMovesOnWhileSomethingIsHeld(t *testing.T) {
	for _, timeout := range []time.Duration{4 * time.Second, 10 * time.Second, 40 * time.Second} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv, func(c *session.Config) { c.Timeout = timeout })
			retain(t, s, ephemeral(t, s))
			last := s.SafeUntil()
			least := timeout
			for range 600 {
				time.Sleep(timeout / 30)
				until := s.SafeUntil()
				require.False(t, until.Before(last), "it never goes back")
				last = until
				least = min(least, time.Until(until))
			}
			require.Greater(t, least, timeout/8, "timeout %v: at its shortest", timeout)
			require.NoError(t, s.Err())
		})
	}
}

// With enableEagerACLCheck a follower refuses a write by itself, and without a zxid. That shows
// nothing of the leader.
func TestARefusalMovesTheLeaseOnlyIfItHasAZxid(t *testing.T) {
	for _, zxid := range []uint64{0, 1} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			srv.Inject(fault.Garble(func(reply []byte) []byte {
				reply = binary.BigEndian.AppendUint64(slices.Clone(reply[:4]), zxid)
				code := fault.CodeNoAuth
				return binary.BigEndian.AppendUint32(reply, uint32(code))
			}).Op(fault.OpDelete))
			before := s.SafeUntil()
			for range 10 {
				time.Sleep(time.Second)
				require.ErrorIs(t, s.Delete(t.Context(), "/forbidden", -1), zk.ErrNoAuth)
			}
			require.Equal(t, zxid > 0, s.SafeUntil().After(before))
		})
	}
}

func TestRetainAfterAnIdleHourHasAFreshLeaseInOneRoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		node := ephemeral(t, s)
		time.Sleep(time.Hour)
		require.True(t, s.SafeUntil().Before(time.Now()), "nothing has been confirmed for an hour")
		start := time.Now()
		retain(t, s, node)
		require.Zero(t, time.Since(start))
		require.Greater(t, time.Until(s.SafeUntil()), s.Timeout()/8)
		require.Equal(t, 1, srv.Requests()[fault.OpMulti])
		require.NoError(t, s.Err())
		time.Sleep(time.Minute)
		require.NoError(t, s.Err())
	})
}

func TestRetainReturnsWhenItsContextOrTheSessionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		node := ephemeral(t, s)
		time.Sleep(time.Hour)
		srv.Inject(fault.Hold().Op(fault.OpMulti))
		start := time.Now()
		_, err := s.Retain(within(t, time.Second), node)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, s.Err())
		ended := make(chan error, 1)
		go func() {
			_, err := s.Retain(context.Background(), node)
			ended <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-ended, session.ErrClosed)
	})
}

func TestAnIdleSessionIsOverWhenNothingIsHeardForItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		time.Sleep(time.Hour)
		srv.Inject(fault.Freeze())
		start := time.Now()
		<-s.Done()
		require.Equal(t, session.ErrLeaseExpired, s.Err())
		require.Less(t, time.Since(start), 10*time.Second)
		require.Greater(t, time.Since(start), 7*time.Second, "not long before it must")
		require.Len(t, srv.Sessions(), 1)
	})
}

// The ensemble counts from the arrival of a request, not from its answer.
func TestASlowAnswerDoesNotProlongTheLease(t *testing.T) {
	for _, held := range []bool{false, true} {
		for phase := range 12 {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				if held {
					retain(t, s, ephemeral(t, s))
				}
				srv.Inject(fault.DelayReply(2 * time.Second))
				time.Sleep(time.Minute + time.Duration(phase)*300*time.Millisecond)
				require.NoError(t, s.Err())
				srv.Inject(fault.FreezeRequests())
				start := time.Now()
				<-s.Done()
				require.Equal(t, session.ErrLeaseExpired, s.Err())
				require.Less(t, time.Since(start), s.Timeout(), "held %v, phase %d", held, phase)
			})
		}
	}
}

func TestALeaseOfAFollowerThatLostItsLeaderEndsBeforeTheLeaderEndsTheSession(t *testing.T) {
	for range 8 {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			follower, err := srv.Follower()
			require.NoError(t, err)
			s := open(t, srv, func(c *session.Config) { c.Dial = follower.Dial })
			_, err = s.Create(within(t, soon), "/e", nil, session.Ephemeral, session.WorldACL())
			require.NoError(t, err)
			retain(t, s, "/e")
			time.Sleep(10*time.Second + rand.N(10*time.Second))
			follower.CutOff() // it still answers pings
			<-s.Done()
			require.Equal(t, session.ErrLeaseExpired, s.Err())
			_, there := srv.Node("/e")
			require.True(t, there, "the leader has not ended it yet")
		})
	}
}

func TestASessionMovesAwayFromAServerThatHangs(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			for range 8 {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					follower, err := srv.Follower()
					require.NoError(t, err)
					s := openAt(t, "leader:1,follower:1", func(c *session.Config) {
						c.Timeout = timeout
						c.Dial = func(network, addr string, d time.Duration) (net.Conn, error) {
							if addr == "follower:1" {
								return follower.Dial(network, addr, d)
							}
							return srv.Dial(network, addr, d)
						}
					})
					retain(t, s, ephemeral(t, s))
					time.Sleep(timeout + rand.N(timeout))
					info, ok := srv.Session(s.ID())
					require.True(t, ok)
					info.Member.Inject(fault.Freeze()) // accepts, and says nothing
					time.Sleep(10 * timeout)
					require.NoError(t, s.Err(), "the other server is healthy")
					require.Equal(t, session.Connected, s.State())
				})
			}
		})
	}
}
