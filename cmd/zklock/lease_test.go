package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALeaseIsInDoubtInTimeAndTheGroupIsKilledBeforeItIsOver(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, c := range map[string]struct {
		timeout, grace, tick time.Duration
		// How much is left, in seconds, when the lease is in doubt and when it is ending. end is
		// the margin, timeout/11. doubt is margin + grace, or session.HealthyLease - timeout/15 if
		// that is less; the grace is at most timeout/4.
		doubt, end float64
	}{
		// 3.05 s is HealthyLease
		"the defaults": {10 * time.Second, 2 * time.Second, 2 * time.Second, 3.05 - 10./15,
			10. / 11},
		"the longest grace": {10 * time.Second, time.Hour, time.Second, 2.5 + 10./11, 10. / 11},
		"no grace":          {10 * time.Second, 0, 2 * time.Second, 10. / 11, 10. / 11},
		// HealthyLease is the timeout less requestToWrite and a sixteenth of it, a ping's interval,
		// the time between heartbeats, and the allowance for clocks.
		"short by nature": {4 * time.Second, time.Second, 2 * time.Second,
			4 - 2.125 - 0.2 - 2./3 - 0.08 - 4./15, 4. / 11},
		"shorter still": {time.Second, time.Second, 10 * time.Second,
			1 - 0.53125 - 0.05 - 0.5/3 - 0.02 - 1./15, 1. / 11},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLease(c.timeout, c.grace, c.tick)
			until := at(7)
			// As the supervisor does: checking again when the lease says so, or, as a timer may, a
			// little later.
			doubted := time.Time{}
			for now := at(0); ; {
				verdict, wait := l.judge(now, until)
				require.Positive(t, wait)
				require.LessOrEqual(t, wait, c.timeout/checkPart)
				if verdict != leaseGood && doubted.IsZero() {
					doubted = now
				}
				if verdict == leaseEnding {
					require.WithinDuration(t, at(7-c.end), now, 2*time.Millisecond)
					break
				}
				now = now.Add(wait + time.Millisecond)
			}
			require.WithinDuration(t, at(7-c.doubt), doubted, 2*time.Millisecond)
		})
	}
}

// The library confirms a lease every fifth of the timeout, or a third of what two ticks leave of
// it: such a lease is never in doubt, however short the leases of an ensemble with long ticks are.
func TestALeaseThatIsConfirmedOnScheduleIsNeverInDoubt(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, tick := range []time.Duration{s / 5, s, 2 * s, 10 * s} {
		for _, timeout := range []time.Duration{4 * s, 6 * s, 10 * s, time.Minute} {
			l := newLease(timeout, timeout/gracePart, tick)
			requestToWrite := min(2*tick, timeout/2)
			heartbeat := min(timeout/5, (timeout-requestToWrite)/3)
			now := time.Unix(0, 0)
			until, asked := now.Add(timeout-requestToWrite), now
			for range 5_000 {
				if !now.Before(asked.Add(heartbeat)) {
					asked = now
					// The heartbeat confirms a ping that was sent requestToWrite before it or
					// earlier: up to a ping's interval earlier, a twentieth, since pings are that
					// far apart, and up to a sixteenth of requestToWrite, since acknowledgements
					// are merged. A fiftieth allows for clocks. See healthyRest in
					// internal/session/internal/lease.
					until = now.Add(timeout - requestToWrite - requestToWrite/16 - timeout/20 -
						timeout/50)
				}
				verdict, wait := l.judge(now, until)
				require.Equal(t, leaseGood, verdict,
					"timeout %v, tick %v, %v left", timeout, tick, until.Sub(now))
				now = now.Add(min(wait, 10*time.Millisecond))
			}
		}
	}
}
