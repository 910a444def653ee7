// Package stats is the benchmark's arithmetic: it turns recorded times into figures. It is the same
// for every contestant.
package stats

import (
	"cmp"
	"slices"
	"time"
)

// Op is one cycle of one worker: when it asked for the lock, had it and began to release it at
// once, and learned that it was free. Times are nanoseconds of one clock.
type Op struct {
	Lock             int
	Asked, Got, Left int64
}

// Window is the measured period.
type Window struct{ Start, End int64 }

func (w Window) has(t int64) bool { return t >= w.Start && t < w.End }

// Cost is what a contestant's process has used in a window. It is zero for a contestant that does
// not report it.
type Cost struct {
	CPU         time.Duration
	Allocations int64 // of objects on the heap
	SystemCalls int64 // that read or write
}

// Less returns the cost from before, an earlier reading, until c.
func (c Cost) Less(before Cost) Cost {
	return Cost{c.CPU - before.CPU, c.Allocations - before.Allocations,
		c.SystemCalls - before.SystemCalls}
}

// Figures are computed from the cycles of a window.
type Figures struct {
	Rate    float64       // of the cycles that ended in the window, a second
	Acquire time.Duration // the median time of those from asking to holding
	// the median time from a release to the hold of the next one, if that was already waiting; zero
	// if none was
	HandOver time.Duration

	// What one cycle costs the contestant's process; zero if that is not known.
	CPU         time.Duration
	Allocations float64
	SystemCalls float64
}

// Of computes the figures of a window, in which the contestant's process has used cost.
func Of(ops []Op, w Window, cost Cost) Figures {
	var acquire []time.Duration
	for _, o := range ops {
		if w.has(o.Left) {
			acquire = append(acquire, time.Duration(o.Got-o.Asked))
		}
	}
	f := Figures{Acquire: Median(acquire), HandOver: Median(handOvers(ops, w))}
	if span := w.End - w.Start; span > 0 {
		f.Rate = float64(len(acquire)) / time.Duration(span).Seconds()
	}
	if cycles := len(acquire); cycles > 0 {
		f.CPU = cost.CPU / time.Duration(cycles)
		f.Allocations = float64(cost.Allocations) / float64(cycles)
		f.SystemCalls = float64(cost.SystemCalls) / float64(cycles)
	}
	return f
}

// handOvers looks at each lock's cycles in the order in which they had it.
func handOvers(ops []Op, w Window) (all []time.Duration) {
	line := slices.Clone(ops)
	slices.SortFunc(line, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.Lock, b.Lock), cmp.Compare(a.Got, b.Got))
	})
	for i := 1; i < len(line); i++ {
		before, o := line[i-1], line[i]
		if before.Lock == o.Lock && w.has(o.Got) && o.Asked < before.Got {
			all = append(all, time.Duration(o.Got-before.Got))
		}
	}
	return all
}

// Median returns the middle value, or the mean of the two in the middle; zero of none.
func Median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	m := len(v) / 2
	if len(v)%2 == 1 {
		return v[m]
	}
	return v[m-1] + (v[m]-v[m-1])/2
}
