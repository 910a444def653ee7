package simulation_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// aim is a fault of one message, and the operation that it is for.
type aim struct {
	what string
	op   fault.Op
}

// aimed is such a fault in one run.
type aimed struct {
	aim
	in *zktest.Injection
}

// hits counts, over all seeds, how often each fault struck each operation.
type hits struct {
	mu  sync.Mutex // guards of
	of  map[aim]int
	all int // seeds
}

func (h *hits) add(of []aimed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all++
	for _, a := range of {
		h.of[a.aim] += a.in.Hits()
	}
}

// table returns a line for each fault, and the aims that were tried and never struck.
func (h *hits) table() (text string, missed []aim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	aims := slices.SortedFunc(maps.Keys(h.of), func(a, b aim) int {
		return cmp.Or(strings.Compare(a.what, b.what), cmp.Compare(a.op, b.op))
	})
	var b strings.Builder
	last := ""
	for _, a := range aims {
		if a.what != last {
			fmt.Fprintf(&b, "\n%s:", a.what)
		}
		last = a.what
		fmt.Fprintf(&b, " %v %d", a.op, h.of[a])
		if h.of[a] == 0 {
			missed = append(missed, a)
		}
	}
	return b.String(), missed
}
