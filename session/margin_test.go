package session_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
)

// marginRow is "| 10 s | 500 ms | 5.8 s | 8.4 s |": session timeout, tick, and what is left of a lease, least and most.
var marginRow = regexp.MustCompile(`(?m)^\| (\d+) (s) \| (\d+) (m?s) \| ([\d.]+) s \| ([\d.]+) s \|$`)

func TestTheOperationsPageSaysWhatTwoTicksLeaveOfALease(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	rows := marginRow.FindAllStringSubmatch(string(page), -1)
	require.GreaterOrEqual(t, len(rows), 5)
	for _, m := range rows {
		timeout, tick := parsed(t, m[1]+m[2]), parsed(t, m[3]+m[4])
		var l session.Lease
		now := time.Now()
		l.Begin(now, timeout, tick)
		assert.Equal(t, parsed(t, m[5]+"s"), l.Steady().Truncate(100*time.Millisecond), "least of %s", m[0])

		// At the most: a heartbeat that is answered at once confirms what was sent two ticks before it or earlier.
		slack := min(2*tick, timeout/2)
		for at := now; at.Before(now.Add(3 * timeout)); at = at.Add(slack / 100) {
			l.Ack(at, at, false)
		}
		now = now.Add(3 * timeout)
		l.Ack(now, now, true)
		most := l.End(true).Sub(now)
		assert.InDelta(t, parsed(t, m[6]+"s").Seconds(), most.Seconds(), (slack/8 + 100*time.Millisecond).Seconds(), "most of %s", m[0])
	}
}

func parsed(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

// sizeRow is "| 5 s: an election | 14 | 11 | 9 |": an interruption, and the timeouts in seconds that survive it with ticks of 2 s,
// 1 s and 500 ms.
var sizeRow = regexp.MustCompile(`(?m)^\| (\d+) s: [^|]+ \| (\d+) \| (\d+) \| (\d+) \|$`)

func TestTheRunbookSaysWhichTimeoutSurvivesAnInterruption(t *testing.T) {
	page, err := os.ReadFile("../docs/runbook.md")
	require.NoError(t, err)
	rows := sizeRow.FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 5)
	for _, m := range rows {
		interruption := parsed(t, m[1]+"s")
		for i, tick := range []time.Duration{2 * time.Second, time.Second, 500 * time.Millisecond} {
			shortest := max(2*tick, time.Second).Truncate(time.Second)
			for ; ; shortest += time.Second {
				var l session.Lease
				l.Begin(time.Now(), shortest, tick)
				if l.Steady() >= interruption {
					break
				}
			}
			assert.Equal(t, parsed(t, m[2+i]+"s"), shortest, "%v with a tick of %v", interruption, tick)
		}
	}
}
