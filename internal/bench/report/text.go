package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/zklock/locker/internal/bench/match"
	"github.com/zklock/locker/internal/bench/stats"
)

// none is printed where nothing was, or can be, measured.
const none = "–"

// Text prints everything, as text or as Markdown.
func Text(r *match.Result, md bool) string {
	var b strings.Builder
	heading := func(format string, args ...any) {
		if md {
			format = "\n**" + format + "**\n\n"
		} else {
			format = "\n" + format + "\n"
		}
		fmt.Fprintf(&b, format, args...)
	}
	for _, line := range preamble(r) {
		if md {
			line = "- " + line
		}
		fmt.Fprintln(&b, line)
	}
	for _, s := range r.Settings {
		t := settingTable(r, s)
		if len(t.rows) > 0 {
			heading("%s", s.Title)
			t.write(&b, md)
		}
	}
	for _, extra := range []struct {
		title string
		table *table
	}{
		{"What it costs the ensemble, for each cycle", costTable(r)},
		{"On the wire, for each cycle", wireTable(r)},
		{"A line in which each waiter gets the lock once: for each hand-over", lineTable(r)},
		{"Until the next one has the lock of a holder that was killed", killTable(r)},
		{"Goals", goalTable(r)},
	} {
		if len(extra.table.rows) > 0 {
			heading("%s", extra.title)
			extra.table.write(&b, md)
		}
	}
	if len(r.Failures) > 0 {
		heading("Failed")
		for _, f := range r.Failures {
			fmt.Fprintln(&b, "-", f)
		}
	}
	return b.String()
}

// preamble describes what was measured, where and how.
func preamble(r *match.Result) []string {
	lines := []string{r.Command, fmt.Sprintf("%s, load average %.1f before and %.1f after", r.Machine, r.Load[0], r.Load[1])}
	lines = append(lines, r.Notes...)
	lines = append(lines, fmt.Sprintf("Medians of %d rounds of %v each. “× floor” compares with create + delete on the plain driver, in the same round.",
		r.Rounds, time.Duration(r.Seconds*float64(time.Second))))
	for _, l := range r.Left {
		lines = append(lines, "Left out: "+l)
	}
	return lines
}

func settingTable(r *match.Result, s match.Setting) *table {
	t := &table{head: []string{"", "cycles/s", "× floor", "acquire p50", "p99", "hand-over p50", "p99"}}
	for _, c := range r.Contestants {
		if len(cells(r, s.Name, c.Name)) == 0 {
			continue
		}
		of := func(spread func(match.Cell) stats.Spread, p99 bool) string {
			return duration(middle(r, s.Name, c.Name, func(c match.Cell) time.Duration {
				if p99 {
					return spread(c).P99
				}
				return spread(c).P50
			}))
		}
		acquire := func(c match.Cell) stats.Spread { return c.Acquire }
		hand := func(c match.Cell) stats.Spread { return c.HandOver }
		x := none
		if q := ratio(cells(r, s.Name, c.Name), cells(r, s.Name, Floor), rate, rate); q > 0 {
			x = fmt.Sprintf("%.2f", q)
		}
		t.add(c.Title, count(middle(r, s.Name, c.Name, rate)), x, of(acquire, false), of(acquire, true), of(hand, false), of(hand, true))
	}
	return t
}

func costTable(r *match.Result) *table {
	t := &table{head: []string{"", "setting", "transactions", "CPU time of the servers"}}
	for _, c := range r.Contestants {
		for _, s := range r.Settings {
			cpu := middle(r, s.Name, c.Name, ensembleCPU)
			if cpu == 0 {
				continue
			}
			t.add(c.Title, s.Name, fmt.Sprintf("%.3f", middle(r, s.Name, c.Name, transactions)), duration(time.Duration(cpu)))
		}
	}
	return t
}

func wireTable(r *match.Result) *table {
	t := &table{head: []string{"", "setting", "requests", "notifications", "bytes sent", "bytes received"}}
	for _, c := range r.Contestants {
		for _, w := range r.Wire {
			if w.Contestant != c.Name {
				continue
			}
			per := func(n int64) float64 { return float64(n) / float64(w.Cycles) }
			t.add(c.Title, w.Setting, small(per(w.Requests)), small(per(w.Notifications)), count(per(w.Bytes[0])), count(per(w.Bytes[1])))
		}
	}
	return t
}

func lineTable(r *match.Result) *table {
	t := &table{head: []string{"", "waiting", "requests", "notifications", "hand-over p50", "heap per waiter", "resident per waiter"}}
	for _, c := range r.Contestants {
		for _, l := range r.Lines {
			if l.Contestant != c.Name {
				continue
			}
			requests, notifications, ok := perHandOver(r, l)
			if !ok {
				continue
			}
			each := func(n int64) string {
				if n < 0 || l.Waiters < 100 { // of a few, all that shows is the noise
					return none
				}
				return fmt.Sprintf("%.1f KB", float64(n)/float64(l.Waiters)/1024)
			}
			t.add(c.Title, fmt.Sprint(l.Waiters), small(requests), small(notifications), duration(l.HandOver.P50), each(l.Heap), each(l.Resident))
		}
	}
	return t
}

func killTable(r *match.Result) *table {
	t := &table{head: []string{"", "session timeout", "median", "longest"}}
	for _, c := range r.Contestants {
		var all []time.Duration
		var timeout, longest time.Duration
		for _, k := range r.Kills {
			if k.Contestant == c.Name {
				all, timeout, longest = append(all, k.Took), k.Timeout, max(longest, k.Took)
			}
		}
		if len(all) > 0 {
			t.add(c.Title, timeout.String(), duration(stats.Median(all)), duration(longest))
		}
	}
	return t
}

func goalTable(r *match.Result) *table {
	t := &table{head: []string{"", "goal", "measured", ""}}
	for _, g := range Goals(r) {
		verdict := "missed"
		if g.Reached {
			verdict = "reached"
		}
		t.add(g.What, g.Goal, g.Measured, verdict)
	}
	return t
}

// duration prints three digits.
func duration(d time.Duration) string {
	switch {
	case d <= 0:
		return none
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// count prints a number with separators.
func count(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func small(f float64) string { return fmt.Sprintf("%.2f", f) }
