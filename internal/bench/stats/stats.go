// Package stats is the benchmark's arithmetic: it turns recorded times into figures. It is the same for every
// contestant.
package stats

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Op is one cycle of one worker: when it asked for the lock, had it, began to release it, and learned that it was free.
// Times are nanoseconds of one clock.
type Op struct {
	Lock                      int
	Asked, Got, Leaving, Left int64
}

// Window is the measured period.
type Window struct{ Start, End int64 }

func (w Window) has(t int64) bool { return t >= w.Start && t < w.End }

// Spread is the median and the 99th percentile of some durations.
type Spread struct {
	N        int           `json:"n"`
	P50, P99 time.Duration // zero when N is
}

// Figures are computed from the cycles of a window.
type Figures struct {
	Cycles   int     `json:"cycles"`    // that ended in the window
	Rate     float64 `json:"rate"`      // of those, a second
	Write    Spread  `json:"write"`     // either half of a cycle
	Acquire  Spread  `json:"acquire"`   // asked → got
	Release  Spread  `json:"release"`   // leaving → left
	HandOver Spread  `json:"hand_over"` // leaving → got by the next one, if that was already waiting
	Overlaps int     `json:"overlaps"`  // times at which the next one got the lock before it was released
}

// Of computes the figures of a window. exclusive: the contestant is a lock, and each holder gets it from the one
// before.
func Of(ops []Op, w Window, exclusive bool) Figures {
	var f Figures
	var acquire, release []time.Duration
	for _, o := range ops {
		if w.has(o.Left) {
			f.Cycles++
			release = append(release, time.Duration(o.Left-o.Leaving))
		}
		if w.has(o.Got) {
			acquire = append(acquire, time.Duration(o.Got-o.Asked))
		}
	}
	if span := w.End - w.Start; span > 0 {
		f.Rate = float64(f.Cycles) / time.Duration(span).Seconds()
	}
	f.Write = SpreadOf(slices.Concat(acquire, release))
	f.Acquire, f.Release = SpreadOf(acquire), SpreadOf(release)
	if exclusive {
		f.HandOver, f.Overlaps = handOvers(ops, w)
	}
	return f
}

// handOvers looks at each lock's cycles in the order in which they had it.
func handOvers(ops []Op, w Window) (s Spread, overlaps int) {
	line := slices.Clone(ops)
	slices.SortFunc(line, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.Lock, b.Lock), cmp.Compare(a.Got, b.Got))
	})
	var all []time.Duration
	for i := 1; i < len(line); i++ {
		before, o := line[i-1], line[i]
		if before.Lock != o.Lock {
			continue
		}
		if o.Got < before.Leaving {
			overlaps++
		}
		if w.has(o.Got) && o.Asked < before.Leaving {
			all = append(all, time.Duration(o.Got-before.Leaving))
		}
	}
	return SpreadOf(all), overlaps
}

// SpreadOf sorts its argument.
func SpreadOf(all []time.Duration) Spread {
	slices.Sort(all)
	return Spread{len(all), Percentile(all, 50), Percentile(all, 99)}
}

// Percentile returns the smallest of the sorted values that p per cent of them do not exceed (the nearest rank); zero
// of none.
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Number is what has a median.
type Number interface{ ~int64 | ~float64 }

// Median returns the middle value, or the mean of the two in the middle; zero of none.
func Median[T Number](values []T) T {
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
