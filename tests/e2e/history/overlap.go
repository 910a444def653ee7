package history

import (
	"fmt"
	"sort"
	"time"
)

// Overlaps returns the pairs of holds that this machine's clock shows held at the same time though
// they exclude each other, one line for each pair. A hold counts from the return of Lock until the
// latest of
//
//   - the last instant at which its Context had not ended, cut where its process was stopped or
//     kept from running for longer than the lease allows for: a context can't end in a process that
//     does not run;
//   - the last instant at which its Err was nil, which is not cut: Err looks at the clock, and is
//     right also in the first moment after a stop;
//   - the greatest SafeUntil that it was seen to promise, unless it was released.
func (h *History) Overlaps() (bad []string) {
	stops := map[int][]Stop{}
	for _, s := range h.Stops {
		stops[s.Client] = append(stops[s.Client], s)
	}
	for _, by := range []struct {
		what string
		end  func(*Op) Stamp
	}{
		{"the context", func(o *Op) Stamp {
			end, _ := h.contextEnd(o, stops[o.Client])
			return end
		}},
		{"Err", func(o *Op) Stamp { return o.Sure }},
		{"SafeUntil", func(o *Op) Stamp {
			if o.Outcome == Lost {
				return o.Safe
			}
			return min(o.Safe, o.Release)
		}},
	} {
		bad = append(bad, h.overlapsBy(by.what, by.end)...)
	}
	return bad
}

// contextEnd is when the context was last seen alive, cut where its process did not run.
func (h *History) contextEnd(o *Op, stops []Stop) (end Stamp, cut bool) {
	end = o.Alive
	if o.Stall != 0 && o.Stall < end && end.Sub(o.Resumed) < settleAfterStall {
		end, cut = o.Stall, true
	}
	for _, s := range stops {
		// Lock may have been about to return when the process was stopped, and was then seen to
		// return right after.
		if s.To > o.Call && s.To.Add(settleAfterStall) > o.Return && s.From < end {
			end, cut = s.From, true
		}
	}
	return end, cut
}

// settleAfterStall is how long after a stall the goroutines that were ready have all run, on a busy
// machine.
const settleAfterStall = 250 * time.Millisecond

// edge is a hold's beginning or end.
type edge struct {
	at    Stamp
	takes int // negative at the end
	op    *Op
}

func (h *History) overlapsBy(what string, end func(*Op) Stamp) (bad []string) {
	byPath := map[string][]edge{}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Kind != Hold {
			continue
		}
		until := end(o)
		if until <= o.Return {
			continue // never seen to be held
		}
		for _, p := range o.Paths {
			byPath[p] = append(byPath[p], edge{o.Return, h.takes(o), o},
				edge{until, -h.takes(o), o})
		}
	}
	for path, edges := range byPath {
		sort.Slice(edges, func(i, j int) bool {
			a, b := edges[i], edges[j]
			return a.at < b.at || a.at == b.at && a.takes < b.takes // ends first
		})
		used, held := 0, map[*Op]bool{}
		for _, e := range edges {
			if used += e.takes; e.takes < 0 {
				delete(held, e.op)
				continue
			}
			if used > h.permits(e.op.Load) {
				for o := range held {
					bad = append(bad, fmt.Sprintf(
						"%s %s: %s got the lock with token %d when %s of %s with token %d still held, which it did for %v more",
						e.op.Load, path, e.op.Worker, e.op.Token,
						what, o.Worker, o.Token, end(o).Sub(e.at)))
				}
			}
			held[e.op] = true
		}
	}
	sort.Strings(bad)
	return bad
}

// Losses counts, in the order in which a store made them, the writes that replaced another value
// than the writer had read: each has undone an acknowledged write.
func (h *History) Losses(l Load) int {
	byPath := map[string][]*Op{}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Load == l && o.Kind == Write && o.Outcome == OK {
			byPath[o.Paths[0]] = append(byPath[o.Paths[0]], o)
		}
	}
	lost := 0
	for _, ws := range byPath {
		sort.Slice(ws, func(i, j int) bool { return ws[i].Seq < ws[j].Seq })
		value := ""
		for _, w := range ws {
			if w.Prev != value {
				lost++
			}
			value = w.Value
		}
	}
	return lost
}

// Figures are the numbers of a history.
type Figures struct {
	Cycles  map[Load]int // holds, by workload
	Failed  int          // calls of Lock that returned an error
	Lost    int          // holds that were lost
	Unknown int          // releases and writes without an answer
	Refused int          // writes that were refused
	Cut     int          // holds whose span was cut, because their process did not run

	// Late is the longest time for which a context was alive after its hold's last SafeUntil, in a
	// process that ran.
	Late time.Duration
}

// Count returns the figures.
func (h *History) Count() Figures {
	stops := map[int][]Stop{}
	for _, s := range h.Stops {
		stops[s.Client] = append(stops[s.Client], s)
	}
	f := Figures{Cycles: map[Load]int{}}
	for i := range h.Ops {
		o := &h.Ops[i]
		switch o.Kind {
		case Failed:
			f.Failed++
		case Hold:
			f.Cycles[o.Load]++
			end, cut := h.contextEnd(o, stops[o.Client])
			if cut {
				f.Cut++
			}
			f.Late = max(f.Late, end.Sub(o.Safe))
			if o.Outcome == Lost {
				f.Lost++
			}
		}
		switch o.Outcome {
		case Unknown:
			f.Unknown++
		case Refused:
			f.Refused++
		}
	}
	return f
}
