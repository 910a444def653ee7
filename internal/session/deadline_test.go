package session_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Scenario 53: the end of a lease waits for no mutex. All mutexes of the session and of its
// connection are held for longer than the lease lasts; the session's context must end before the
// server ends the session, since only then another client can hold. A machine that stands still may
// delay one trial, not all of them.
func TestTheLeaseEndsOnTimeWhileTheSessionsMutexesAreHeld(t *testing.T) {
	const tick, timeout, trials = 200 * time.Millisecond, 2 * time.Second, 5
	srv := zktest.Run(t, zktest.WithTick(tick))
	for trial := 1; ; trial++ {
		s := openAt(t, srv.Addr(), func(c *session.Config) {
			c.Timeout, c.TickTime = timeout, tick
		})
		retain(t, s, ephemeral(t, s))
		id, safe := s.ID(), s.SafeUntil()
		release := s.HoldMutexes()
		bound := time.NewTimer(2 * timeout)
		select {
		case <-s.Done():
		case <-bound.C:
		}
		_, stands := srv.Session(id)
		at, cause, state := time.Now(), context.Cause(s.Context()), session.Connected
		if cause != nil {
			state = s.State() // which takes no mutex then
		}
		release()
		bound.Stop()
		if stands && !at.After(safe) {
			require.Equal(t, session.ErrLeaseExpired, cause)
			require.Equal(t, session.Over, state,
				"nobody has kept the books yet, and the state agrees with the context")
			return
		}
		require.Less(t, trial, trials, "the context ended %v after SafeUntil, in every trial",
			at.Sub(safe))
	}
}

// Alive reports the end as soon as the lease has expired, whether or not the timer has run.
func TestAliveReadsTheClockAndWaitsForNoTimer(t *testing.T) {
	srv := zktest.Run(t)
	s := openAt(t, srv.Addr())
	retain(t, s, ephemeral(t, s))
	require.NoError(t, s.Alive())
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Alive() }))
	srv.Inject(fault.FreezeReplies()) // else a heartbeat between the steps may confirm the lease
	s.StepClock(3 * time.Second)
	require.NoError(t, s.Alive())
	s.StepClock(7 * time.Second)
	require.Equal(t, session.ErrLeaseExpired, s.Alive())
	require.Error(t, s.Context().Err())
	require.Equal(t, session.Over, s.State())
}

// It is the first thing that a program asks when its machine has woken up.
func TestSafeUntilAllowsForASleepThatHasJustEnded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		before := s.SafeUntil()
		s.WakeUp(time.Minute)
		require.Equal(t, before, s.SafeUntil())
	})
}

// Scenario 58: on a connection that carries requests but no replies a close would arrive and end
// the session early. So a session whose lease has expired sends no close; the server ends it at its
// timeout.
func TestScenario58_NothingEndsALostSessionBeforeTheTimeThatWasPromised(t *testing.T) {
	for name, failure := range map[string]fault.Fault{"no reply arrives": fault.FreezeReplies(),
		"no reply arrives to what goes through the leader": fault.HoldReply().Op(fault.OpMulti)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				retain(t, s, ephemeral(t, s))
				time.Sleep(time.Minute)
				srv.Inject(failure)
				closed := srv.Requests()[fault.OpCloseSession]
				eventually(t, s.Done(), "the end of the session")
				promised := s.SafeUntil()
				require.Equal(t, session.ErrLeaseExpired, s.Err())
				require.NoError(t, s.Close())
				time.Sleep(time.Until(promised))
				require.Len(t, srv.Sessions(), 1)
				require.Equal(t, closed, srv.Requests()[fault.OpCloseSession])
				time.Sleep(time.Minute)
				require.Empty(t, srv.Sessions(), "nothing of ours keeps it alive")
			})
		})
	}
}

// Scenario 59: a server with a lower maxSessionTimeout takes the session over, and its answer is
// lost: from then on the leader counts the shorter timeout.
func TestScenario59_ALeaseEndsBeforeTheShorterSessionOfAReattachmentWithoutAnAnswer(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		for range 4 {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				low, err := srv.Follower()
				require.NoError(t, err)
				low.LimitSessions(4*time.Second, 4*time.Second)
				at := srv.Leader()
				s := openAt(t, "one:1", func(c *session.Config) {
					c.Timeout = timeout
					c.Dial = func(network, addr string, d time.Duration) (net.Conn, error) {
						return at.Dial(network, addr, d)
					}
				})
				retain(t, s, ephemeral(t, s))
				time.Sleep(timeout)
				at = low
				low.Inject(fault.FreezeReplies().Op(fault.OpConnect))
				low.Inject(fault.Refuse().After(1))
				srv.DropConnections()
				eventually(t, s.Done(), "the end of the session")
				require.Equal(t, session.ErrLeaseExpired, s.Err())
				require.Len(t, srv.Sessions(), 1, "timeout %v: the ensemble keeps it still",
					timeout)
				require.False(t, time.Now().After(s.SafeUntil()))
			})
		}
	}
}

// A server that closes the connection instead of answering, as one without a leader does, has not
// shortened the session.
func TestAHandshakeThatIsRefusedDoesNotShortenTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv, func(c *session.Config) { c.Timeout = 40 * time.Second })
		retain(t, s, ephemeral(t, s))
		time.Sleep(time.Minute)
		away := srv.Inject(fault.CloseBefore().Op(fault.OpConnect))
		srv.DropConnections()
		time.Sleep(20 * time.Second)
		require.NoError(t, s.Err())
		away.Remove()
		time.Sleep(time.Minute)
		require.NoError(t, s.Err())
	})
}

func TestAGrantThatNoLeaseCanBeHadWithIsRefusedWithTheRule(t *testing.T) {
	for name, c := range map[string]struct {
		opt  zktest.Option
		asks time.Duration
		rule string
	}{
		"below a tick": {zktest.WithSessionTimeouts(time.Second, time.Second), time.Second,
			"shorter than a server tick of 2s: ask for at least two ticks"},
		"more than was asked for": {zktest.WithSessionTimeouts(12*time.Second, time.Hour),
			10 * time.Second,
			"granted a session timeout of 12s, and 10s was asked for: if the servers' minSessionTimeout is above two ticks, ask for that much"},
		"a little more than was asked for": {zktest.WithSessionTimeouts(4001*time.Millisecond,
			time.Hour), time.Second, "granted a session timeout of 4.001s"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				_, err := session.Open(within(t, 5*time.Second), srv.Addr(),
					session.Config{Timeout: c.asks, TickTime: 2 * time.Second, Dial: srv.Dial})
				require.ErrorContains(t, err, c.rule)
			}, c.opt)
		})
	}
}

// A server that takes a session over and grants a longer timeout than before does not prolong the
// lease.
func TestALongerGrantToASessionThatIsTakenOverIsNotBelieved(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		retain(t, s, ephemeral(t, s))
		srv.Leader().LimitSessions(time.Hour, time.Hour)
		srv.DropConnections()
		time.Sleep(time.Minute)
		require.Equal(t, time.Hour, s.Timeout())
		require.False(t, s.SafeUntil().After(time.Now().Add(10*time.Second)))
		require.NoError(t, s.Err())
	})
}

// Without Config.TickTime the tick is found out by what a server grants a session that asks for the
// least. A server that grants hours would make every lease allow for ticks of hours.
func TestATickThatIsFoundOutIsBelievedUpToAMinute(t *testing.T) {
	for granted, believed := range map[time.Duration]bool{
		4 * time.Second: true, 2 * time.Minute: true, 2*time.Minute + 2*time.Millisecond: false,
		596 * time.Hour: false,
	} {
		t.Run(granted.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s, err := session.Open(within(t, 10*time.Second), srv.Addr(),
					session.Config{Timeout: 5 * time.Minute, Dial: srv.Dial})
				if believed {
					require.NoError(t, err)
					require.Equal(t, granted/2, s.TickTime())
					require.NoError(t, s.Close())
					return
				}
				require.ErrorIs(t, err, session.ErrUnreachable)
				require.ErrorContains(t, err,
					"the servers' tick can't be found out: give it (WithTickTime)")
			}, zktest.WithSessionTimeouts(granted, 1000*time.Hour))
		})
	}
}
