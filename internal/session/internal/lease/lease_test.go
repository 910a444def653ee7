package lease_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/lease"
)

// at returns the instant s seconds after the beginning of a test.
func at(s float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(math.Round(s*1000)) * time.Millisecond)
}

// acked is one acknowledgement in the tables below.
type acked struct {
	sent, at float64
	leader   bool
}

func TestAnAcknowledgementCountsOnceALaterRoundTripThroughTheLeaderHas(t *testing.T) {
	for name, c := range map[string]struct {
		acks             []acked
		acked, confirmed float64
	}{
		"the handshake alone": {nil, 10, 10},
		"a ping":              {[]acked{{1, 1.1, false}}, 11, 10},
		"many pings": {[]acked{{1, 1.1, false}, {4, 4.1, false},
			{7, 7.1, false}}, 17, 10},
		"a ping, a sync a tick later": {[]acked{{1, 1.1, false}, {3, 3.2, true}}, 13, 11},
		"a ping, a sync just too early": {[]acked{{1, 1.1, false}, {2.99, 3.2, true}}, 12.99,
			10},
		"a sync does not confirm itself":   {[]acked{{5, 5.1, true}}, 15, 10},
		"a sync confirms an earlier sync":  {[]acked{{5, 5.1, true}, {7.1, 7.2, true}}, 17.1, 15},
		"a slow reply: a tick after it":    {[]acked{{1, 4, false}, {4.99, 5.1, true}}, 14.99, 10},
		"a slow reply: and then it counts": {[]acked{{1, 4, false}, {5, 5.1, true}}, 15, 11},
		"the latest that is old enough": {[]acked{{1, 1.1, false}, {2, 2.1, false},
			{3, 3.1, false}, {4.5, 4.6, true}}, 14.5, 12},
		"a ping after the sync waits": {[]acked{{1, 1.1, false}, {4, 4.1, true},
			{6, 6.1, false}}, 16, 11},
		"and is confirmed by the next": {[]acked{{1, 1.1, false}, {4, 4.1, true},
			{6, 6.1, false}, {9, 9.1, true}}, 19, 16},
		"merged spans: the later arrival": {[]acked{{1, 1.1, false}, {1.1, 1.2, false},
			{3.05, 3.25, true}}, 13.05, 10},
		"merged spans: the later sending": {[]acked{{1, 1.1, false}, {1.1, 1.2, false},
			{3.2, 3.35, true}}, 13.2, 11.1},
	} {
		t.Run(name, func(t *testing.T) {
			var l lease.Lease
			l.Begin(at(0), 10*time.Second, time.Second)
			for _, a := range c.acks {
				l.Ack(at(a.sent), at(a.at), a.leader)
			}
			require.Equal(t, at(c.acked), l.AnsweredUntil(), "acknowledged")
			require.Equal(t, at(c.confirmed), l.ConfirmedUntil(), "confirmed")
			require.Equal(t, at(c.confirmed-0.2), l.SafeUntil(),
				"a fiftieth of the timeout is kept for drift")
			require.Equal(t, at(c.confirmed-1.1), l.End(true),
				"a holder's work has a twentieth to stop in, and hears of that a twenty-fifth earlier")
			require.Equal(t, at(c.acked-0.2), l.End(false),
				"who holds nothing goes by plain acknowledgements")
		})
	}
}

func TestAHandshakeIsConfirmedByTheNextWriteAndForgetsTheOldServersAcknowledgements(t *testing.T) {
	var l lease.Lease
	l.Begin(at(0), 10*time.Second, time.Second)
	require.Equal(t, at(10), l.ConfirmedUntil(), "a new session is made by a write")
	l.Ack(at(4), at(4.1), false)
	l.Resume(at(5), at(5.1), 10*time.Second, time.Second)
	require.Equal(t, at(10), l.ConfirmedUntil(),
		"the leader that validated it may have been replaced")
	require.Equal(t, at(15), l.AnsweredUntil())
	require.Equal(t, 1, l.Spans(), "the old server's report may never arrive")
	l.Ack(at(5.2), at(5.3), true)
	require.Equal(t, at(15), l.ConfirmedUntil(), "at once: the leader itself had been told")
}

func TestAShortTimeoutProvesAShorterTick(t *testing.T) {
	var l lease.Lease
	l.Begin(at(0), time.Second, 2*time.Second)
	l.Ack(at(0.1), at(0.2), false)
	l.Ack(at(0.69), at(0.7), true)
	require.Equal(t, at(1), l.ConfirmedUntil(), "half the timeout has not passed since the reply")
	l.Ack(at(0.8), at(0.9), true)
	require.Equal(t, at(1.1), l.ConfirmedUntil())
}

func TestMemoryOfALeaseIsBoundedAndItStillConfirmsSomethingRecent(t *testing.T) {
	for name, every := range map[string]time.Duration{
		"a reply every millisecond": time.Millisecond, "a reply every 70 ms": 70 * time.Millisecond,
		"a reply every 250 ms": 250 * time.Millisecond, "the idle ping": 10 * time.Second / 6,
		"slower than the tick": 3 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			const timeout, tick = 10 * time.Second, time.Second
			var l lease.Lease
			l.Begin(at(0), timeout, tick)
			now := at(0)
			for n := 0; now.Before(at(3600)) && n < 50_000; n++ {
				// an hour, or many replies, without confirmation by the leader
				now = now.Add(every)
				l.Ack(now.Add(-time.Millisecond), now, false)
				if l.Spans() > lease.MaxSpans {
					require.FailNow(t, "grows", "%d spans", l.Spans())
				}
			}
			require.Equal(t, at(10), l.ConfirmedUntil())
			l.Ack(now, now.Add(time.Millisecond), true)
			// A confirmation counts for the last reply before the tick; merged spans count as their
			// latest.
			oldest := now.Add(-2*tick - every - tick/8)
			require.False(t, l.ConfirmedUntil().Before(oldest.Add(timeout)), "%v",
				l.ConfirmedUntil().Sub(now))
		})
	}
}
