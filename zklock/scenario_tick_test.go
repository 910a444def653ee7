package zklock_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// scenario 80: a zoo.cfg without tickTime means ticks of 3 s, and others have other ticks. The client finds them out: a hold
// lasts, without the ensemble, as long as its lease for that tick allows.
func TestScenario80_ALeaseAllowsForTheServersTickWithoutAnOption(t *testing.T) {
	for tick, lasts := range map[time.Duration]struct{ least, most time.Duration }{
		500 * time.Millisecond: {5300 * time.Millisecond, 7900 * time.Millisecond},
		2 * time.Second:        {2100 * time.Millisecond, 4900 * time.Millisecond},
		3 * time.Second:        {1400 * time.Millisecond, 3900 * time.Millisecond},
	} {
		t.Run(tick.String(), func(t *testing.T) {
			for range 10 { // at another moment of the heartbeat each time
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
					require.Equal(s, tick, a.SessionStatus().TickTime)
					h := s.Lock(a.Mutex(dir))
					lost := locktest.LossOf(h)
					next := locktest.Go(s.Context(), b.Mutex(dir).Lock)
					time.Sleep(20*time.Second + rand.N(10*time.Second))
					promised, cut := h.SafeUntil(), time.Now()
					refused := s.Server.Inject(fault.Refuse())
					s.Server.Inject(fault.Freeze().Session(a.SessionID()))
					loss := <-lost
					require.Equal(s, zklock.ErrLeaseOver, loss.Cause)
					require.Greater(s, loss.At.Sub(cut), lasts.least)
					require.Less(s, loss.At.Sub(cut), lasts.most)
					refused.Remove()
					next.Get(s)
					stoppedInTime(s, promised, loss, next.At, 10*time.Second, tick)
				}, zktest.WithTick(tick), zktest.WithSessionTimeouts(2*tick, time.Minute))
			}
		})
	}
}

// The tick is found out by the first session of a client, also by Open, and used by the next ones.
func TestATickIsFoundOutOnceForEachClient(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		srv.Leader().Down()
		c, err := zklock.Open(srv.Addr(), zklock.WithDialer(srv.Dial))
		require.NoError(t, err)
		defer c.Close()
		require.Zero(t, c.SessionStatus().TickTime, "not known yet")
		srv.Leader().Up()
		for range 3 {
			s, err := unsealed.Session(locktest.Soon(t), c)
			require.NoError(t, err)
			require.Equal(t, 3*time.Second, c.SessionStatus().TickTime)
			require.Equal(t, 1, srv.Requests()[fault.OpCloseSession], "of the session that found it out")
			require.NoError(t, srv.Expire(s.ID()))
			<-s.Done()
		}
	}, zktest.WithTick(3*time.Second))
}
