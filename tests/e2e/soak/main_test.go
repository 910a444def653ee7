package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/e2e/chaos"
)

func report(goroutines int, heap uint64) *chaos.Report {
	return &chaos.Report{Goroutines: goroutines, Heap: heap, Watches: 0}
}

func TestTheVerdictIgnoresVoidRoundsAndReportsGrowth(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		change func(all []*chaos.Report)
		want   string // part of the error; empty: all is well
	}{
		"a flat line": {func([]*chaos.Report) {}, ""},
		"one minute with many goroutines": {func(all []*chaos.Report) {
			all[7].Goroutines = 1000
		}, ""},
		"goroutines that grow": {func(all []*chaos.Report) {
			for i, r := range all {
				r.Goroutines += 20 * i
			}
		}, "goroutines grow"},
		"a heap that grows": {func(all []*chaos.Report) {
			for i, r := range all {
				r.Heap += uint64(i) * 10 * mb
			}
		}, "heap grows"},
		"a problem": {func(all []*chaos.Report) { all[3].Problems = []string{"two holders"} },
			"1 problems; seed 42"},
		"a problem of ZooKeeper's own": {func(all []*chaos.Report) {
			all[3].Problems, all[3].Rollbacks = []string{"two holders"}, []string{"the witness"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*chaos.Report
			for range 10 {
				all = append(all, report(100, 10*mb))
			}
			c.change(all)
			var sum totals
			for _, r := range all {
				sum.add(r)
			}
			var out bytes.Buffer
			err := sum.verdict(&out, 42)
			if c.want == "" {
				require.NoError(t, err)
				require.Contains(t, out.String(), "no problem, and nothing that grows")
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
