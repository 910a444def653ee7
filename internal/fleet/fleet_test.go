package fleet_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	full = flag.Bool("full", false, "run the fleets of the table")
	only = flag.String("only", "", "with -full: the rows with this in their names; the others stay as RESULT.md has them")
	out  = flag.String("o", "", "with -full: write the table to this `file`")
)

// row is a fleet in the table.
type row struct {
	name string
	setup
}

const minute = time.Minute

var rows = []row{
	{"1,000 clients on 100 locks", setup{clients: 1000, paths: 100, timeout: 30 * time.Second, hold: 10 * time.Second, warm: 2 * minute, measure: 5 * minute}},
	{"– with the default timeout", setup{clients: 1000, paths: 100, timeout: 10 * time.Second, hold: 10 * time.Second, warm: 2 * minute, measure: 3 * minute}},
	{"– that hold for a second", setup{clients: 1000, paths: 100, timeout: 30 * time.Second, hold: time.Second, warm: 2 * minute, measure: 3 * minute}},
	{"1,000 holders", setup{clients: 1000, paths: 1000, timeout: 30 * time.Second, warm: 2 * minute, measure: 3 * minute}},
	{"10,000 clients on 100 locks", setup{clients: 10_000, paths: 100, timeout: 30 * time.Second, hold: 10 * time.Second, warm: 5 * minute, measure: 120 * minute}},
	{"10,000 holders", setup{clients: 10_000, paths: 10_000, timeout: 30 * time.Second, warm: 5 * minute, measure: 3 * minute}},
}

// result is a fleet's work per second.
type result struct {
	pings, reads float64 // of the busiest region, for each of its servers
	writes       float64 // of the leader
	turns        float64
	peak         int64            // requests in one second, of all
	over         [3]time.Duration // hand-overs to each region: the median
	worst        time.Duration    // of a hundred hand-overs the slowest one
	lost         int
	goroutines   int
	heap         uint64
}

// play runs a fleet in simulated time.
func play(t *testing.T, s setup) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := build(t, s)
		w.run()
		seconds := time.Since(w.from).Seconds()
		for i := range w.counts {
			n := &w.counts[i]
			r.pings = max(r.pings, float64(n.pings.Load())/2/seconds)
			r.reads = max(r.reads, float64(n.reads.Load())/2/seconds)
			r.writes += float64(n.writes.Load()) / seconds
		}
		for i := range w.perTick[int(s.warm/time.Second) : int((s.warm+s.measure)/time.Second)-1] {
			r.peak = max(r.peak, w.perTick[int(s.warm/time.Second)+i].Load())
		}
		w.mu.Lock()
		for i := range r.over {
			r.over[i] = w.percentile(i, 0.5)
		}
		r.turns, r.worst, r.lost = float64(w.turns)/seconds, w.percentile(-1, 0.99), w.lost
		w.mu.Unlock()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		r.goroutines, r.heap = runtime.NumGoroutine(), mem.HeapInuse
		w.end()
	})
	return r
}

// The traffic of a fleet is what docs/capacity.md says: it grows with the sessions and the turns, and with nothing
// else.
func TestAFleetsTrafficGrowsWithSessionsAndTurnsAndNothingElse(t *testing.T) {
	const n, locks = 250, 25 // not a multiple of three: clients of all regions meet at each lock
	timeout, hold := 30*time.Second, 5*time.Second
	r := play(t, setup{clients: n, paths: locks, timeout: timeout, hold: hold, warm: minute, measure: 3 * minute})
	require.Zero(t, r.lost)
	assert.InEpsilon(t, float64(locks)/hold.Seconds(), r.turns, 0.15, "turns")
	held := float64(locks) * 5 / timeout.Seconds() // a write every fifth of the timeout
	assert.InEpsilon(t, 2*r.turns+held, r.writes, 0.3, "writes: two for each turn, and those of the leases")
	idle := float64(n) / 6 * 6 / timeout.Seconds() // of a server: a sixth of the clients, a ping each sixth of the timeout
	assert.InEpsilon(t, idle, r.pings, 0.3, "pings")
	for i, far := range []time.Duration{500 * time.Microsecond, 40 * time.Millisecond, 85 * time.Millisecond} {
		assert.GreaterOrEqual(t, r.over[i], far, "a hand-over takes the event's way at least")
		assert.Less(t, r.over[i], 85*time.Millisecond+3*far+10*time.Millisecond, "the delete's way, the event's, and a look's")
	}
	assert.Less(t, r.peak, int64(40*n), "no second is much worse than another")

	holders := play(t, setup{clients: n, paths: n, timeout: timeout, warm: minute, measure: 2 * minute})
	require.Zero(t, holders.lost)
	assert.InEpsilon(t, float64(n)*5/timeout.Seconds(), holders.writes, 0.3, "writes of leases")
}

// begins is how a fleet's line in the table begins.
func (f row) begins() string {
	return fmt.Sprintf("| %s | %.0f s | %.0f min |", f.name, f.timeout.Seconds(), f.measure.Minutes())
}

// With -full it makes the table; without, it checks that the table has every fleet.
func TestTheCapacityTableHasEveryFleet(t *testing.T) {
	last, err := os.ReadFile("RESULT.md")
	require.NoError(t, err)
	if !*full {
		assert.True(t, strings.HasPrefix(string(last), head), "make it anew")
		for _, f := range rows {
			assert.Contains(t, string(last), f.begins())
		}
		return
	}
	var b strings.Builder
	b.WriteString(head)
	for _, f := range rows {
		if !strings.Contains(f.name, *only) {
			b.WriteString(regexp.MustCompile(regexp.QuoteMeta(f.begins()) + ".*\n").FindString(string(last)))
			continue
		}
		began := time.Now()
		r := play(t, f.setup)
		line := fmt.Sprintf("%s %.0f | %.0f | %.0f | %.1f | %s / %s / %s | %s | %d | %d |\n", f.begins(),
			r.pings, r.reads, r.writes, r.turns, ms(r.over[0]), ms(r.over[1]), ms(r.over[2]), ms(r.worst), r.peak, r.lost)
		b.WriteString(line)
		t.Logf("%stook %v, %d goroutines, %d MB", line, time.Since(began).Round(time.Second), r.goroutines, r.heap>>20)
	}
	if *out != "" {
		require.NoError(t, os.WriteFile(*out, []byte(b.String()), 0o644))
	}
}

func ms(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f", float64(d)/float64(time.Millisecond))
}

const head = `# A fleet on one ensemble

Made by the command in [doc.go](doc.go). A third of the clients is in the voters' region, a third 40 ms and a third 85 ms away
from the leader (one way), beside two servers of their own. A holder works for 10 s unless a row says otherwise; whoever has
released queues again. All figures but the hand-overs are for each second of simulated time.

| fleet | timeout | simulated | pings, a server | reads, a server | writes, the leader | turns | hand-over, median, to each region (ms) | slowest of 100 (ms) | requests, worst second | holds lost |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
`
