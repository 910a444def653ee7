package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALeaseIsDoubtedInTimeAndEndsBeforeItIsOver(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, c := range map[string]struct {
		timeout, grace time.Duration
		moves          [][2]float64 // when SafeUntil was seen, and what it was then
		doubt, end     float64      // when they begin, after the last move
	}{
		"a silence":                        {10 * time.Second, 2 * time.Second, [][2]float64{{0, 7}}, 7 - 2.625, 7 - 0.625},
		"one that moved on":                {10 * time.Second, 2 * time.Second, [][2]float64{{0, 7}, {2, 9}}, 9 - 2.625, 9 - 0.625},
		"the longest grace":                {10 * time.Second, time.Hour, [][2]float64{{0, 7}}, 7 - 3.125, 7 - 0.625},
		"no grace":                         {10 * time.Second, 0, [][2]float64{{0, 7}}, 7 - 0.625, 7 - 0.625},
		"short by nature: a sixth of four": {4 * time.Second, time.Second, [][2]float64{{0, 1.2}}, 4. / 6, 1.2 - 0.25},
		"too short for any doubt":          {4 * time.Second, time.Second, [][2]float64{{0, 0.5}}, 0.25, 0.25},
		"the machine was asleep":           {10 * time.Second, 2 * time.Second, [][2]float64{{0, 7}, {1, 4}}, 10. / 6, 4 - 0.625},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLease(c.timeout, c.grace)
			var until time.Time
			from := 0.0
			for _, m := range c.moves {
				from, until = m[0], at(m[1])
				verdict, _ := l.judge(at(from), until)
				require.Equal(t, leaseGood, verdict)
			}
			// As the supervisor does: looking again when it was told to, or, as a timer may, a little later.
			doubted := time.Time{}
			for now := at(from); ; {
				verdict, wait := l.judge(now, until)
				require.Positive(t, wait)
				require.LessOrEqual(t, wait, c.timeout/lookPart)
				if verdict != leaseGood && doubted.IsZero() {
					doubted = now
				}
				if verdict == leaseEnding {
					require.WithinDuration(t, at(c.end), now, 2*time.Millisecond)
					require.True(t, now.Before(until), "before SafeUntil")
					break
				}
				now = now.Add(wait + time.Millisecond)
			}
			require.WithinDuration(t, at(c.doubt), doubted, 2*time.Millisecond)
		})
	}
}

// The library confirms a lease every fifth of the timeout, or every tenth when less than half of it is left: that is
// never doubted, however short the leases of an ensemble with long ticks are.
func TestAHealthyLeaseIsNeverDoubted(t *testing.T) {
	t.Parallel()
	for _, tick := range []time.Duration{200 * time.Millisecond, 2 * time.Second} {
		for _, timeout := range []time.Duration{4 * time.Second, 6 * time.Second, 10 * time.Second, time.Minute} {
			l := newLease(timeout, timeout/gracePart)
			slack := min(tick, timeout/2)
			now := time.Unix(0, 0)
			until, asked := now.Add(timeout-timeout/50), now
			for range 10_000 {
				due := asked.Add(timeout / 5)
				if until.Sub(now) < timeout/2 {
					due = asked.Add(timeout / 10)
				}
				if !now.Before(due) { // what was acknowledged a slack ago, and by a ping before that, counts
					until, asked = now.Add(-slack-slack/8-timeout/10+timeout-timeout/50), now
				}
				verdict, wait := l.judge(now, until)
				require.Equal(t, leaseGood, verdict, "timeout %v, tick %v, %v left", timeout, tick, until.Sub(now))
				now = now.Add(min(wait, 10*time.Millisecond))
			}
		}
	}
}
