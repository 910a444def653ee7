// Package report turns the measurements into a table and a drawing.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zklock/locker/tests/bench/match"
	"github.com/zklock/locker/tests/bench/stats"
)

// middle returns the medians over the rounds; zero when the contestant did not take part.
func middle(r *match.Result, s match.Setting, c match.Contestant) stats.Figures {
	var rates []float64
	var acquire, handOver []time.Duration
	for _, f := range r.Cells[match.Key(s, c)] {
		rates, acquire, handOver = append(rates, f.Rate), append(acquire, f.Acquire), append(handOver, f.HandOver)
	}
	return stats.Figures{Rate: stats.Median(rates), Acquire: stats.Median(acquire), HandOver: stats.Median(handOver)}
}

// Text prints what was measured, where and how, and the figures as a Markdown table.
func Text(r *match.Result) string {
	var b strings.Builder
	how := []string{r.Machine, fmt.Sprintf("medians of %d rounds of %v each", r.Rounds, r.Run)}
	for _, line := range slices.Concat(how, r.Notes, r.Left, r.Failures) {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	const first, column = "\n| %-33s |", " %26s |"
	fmt.Fprintf(&b, first, "cycles a second (p50)")
	for _, c := range r.Contestants {
		fmt.Fprintf(&b, column, strings.TrimSuffix(c.Title, ": create + delete, plain driver"))
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(r.Contestants)))
	for _, s := range r.Settings {
		fmt.Fprintf(&b, first, s.Title)
		for _, c := range r.Contestants {
			fmt.Fprintf(&b, column, cell(middle(r, s, c)))
		}
	}
	b.WriteString("\n\nIn brackets the hand-over between clients, from a release to the next hold; where no one waits, how long acquiring takes.\n")
	return b.String()
}

func cell(f stats.Figures) string {
	if f.Rate == 0 {
		return ""
	}
	return count(f.Rate) + " (" + duration(cmp.Or(f.HandOver, f.Acquire)) + ")"
}

func duration(d time.Duration) string {
	if d < 100*time.Microsecond {
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.2f ms", float64(d)/1e6)
}

// count prints a number with separators.
func count(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
