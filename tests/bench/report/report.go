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
	var acquire, handOver, cpu []time.Duration
	var allocations, calls []float64
	for _, f := range r.Cells[match.Key(s, c)] {
		rates, acquire, handOver = append(rates, f.Rate), append(acquire,
			f.Acquire), append(handOver, f.HandOver)
		cpu, allocations, calls = append(cpu, f.CPU), append(allocations,
			f.Allocations), append(calls, f.SystemCalls)
	}
	return stats.Figures{
		Rate: stats.Median(rates), Acquire: stats.Median(acquire), HandOver: stats.Median(handOver),
		CPU: stats.Median(cpu), Allocations: stats.Median(allocations),
		SystemCalls: stats.Median(calls),
	}
}

// Text prints what was measured, where and how, and the figures as a Markdown table.
func Text(r *match.Result) string {
	var b strings.Builder
	how := []string{r.Machine, fmt.Sprintf("medians of %d rounds of %v each", r.Rounds, r.Run)}
	for _, line := range slices.Concat(how, r.Notes, r.Left, r.Failures) {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	table(&b, r, "cycles a second (p50)", r.Contestants, cell)
	b.WriteString("\nIn brackets the hand-over between clients, from a release to the next hold; where no one waits, how long acquiring takes.\n")
	reporting := slices.DeleteFunc(slices.Clone(r.Contestants), func(c match.Contestant) bool {
		return !reportsCost(r, c)
	})
	if len(reporting) > 0 {
		table(&b, r, "a cycle costs the client", reporting, cost)
		b.WriteString(
			"\nCPU time, allocations, and system calls that read or write, of the contestant's process.\n")
	}
	return b.String()
}

// table prints a cell for each setting and contestant.
func table(
	b *strings.Builder, r *match.Result, title string, contestants []match.Contestant,
	cell func(stats.Figures) string,
) {
	const first, column = "\n| %-33s |", " %26s |"
	fmt.Fprintf(b, first, title)
	for _, c := range contestants {
		fmt.Fprintf(b, column, strings.TrimSuffix(c.Title, ": plain driver"))
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(contestants)))
	for _, s := range r.Settings {
		fmt.Fprintf(b, first, s.Title)
		for _, c := range contestants {
			fmt.Fprintf(b, column, cell(middle(r, s, c)))
		}
	}
	b.WriteString("\n")
}

// reportsCost reports whether the contestant says what its process has used.
func reportsCost(r *match.Result, c match.Contestant) bool {
	return slices.ContainsFunc(r.Settings, func(s match.Setting) bool {
		return middle(r, s, c).CPU > 0
	})
}

// cost is a cell of the second table.
func cost(f stats.Figures) string {
	if f.CPU == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f µs, %s, %.1f", float64(f.CPU)/1e3, count(f.Allocations), f.SystemCalls)
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
