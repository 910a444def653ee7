// Package report turns the measurements into tables, a verdict on the goals, and a drawing.
package report

import (
	"encoding/json"
	"os"

	"github.com/zklock/locker/internal/bench/match"
	"github.com/zklock/locker/internal/bench/stats"
)

// WriteJSON writes everything that was measured.
func WriteJSON(file string, r *match.Result) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(file string) (*match.Result, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(match.Result)
	return r, json.Unmarshal(b, r)
}

// Floor is the contestant that everything is compared with.
const Floor = "raw"

// FloorWithList is the least that a lock of this recipe needs: the floor, and a list after each create.
const FloorWithList = "raw-list"

// cells returns what a contestant did in a setting, by round.
func cells(r *match.Result, setting, contestant string) map[int]match.Cell {
	found := map[int]match.Cell{}
	for _, c := range r.Cells {
		if c.Setting == setting && c.Contestant == contestant {
			found[c.Round] = c
		}
	}
	return found
}

// middle is the median over the rounds of one figure of a contestant's; zero when it did not take part.
func middle[T stats.Number](r *match.Result, setting, contestant string, of func(match.Cell) T) T {
	var all []T
	for _, c := range cells(r, setting, contestant) {
		all = append(all, of(c))
	}
	return stats.Median(all)
}

// ratio is the median over the rounds of one figure divided by another of the same round; zero when there is none.
func ratio(a, b map[int]match.Cell, ofA, ofB func(match.Cell) float64) float64 {
	var all []float64
	for round, c := range a {
		if d, ok := b[round]; ok && ofB(d) > 0 {
			all = append(all, ofA(c)/ofB(d))
		}
	}
	return stats.Median(all)
}

// perHandOver is the cost of one hand-over in a line, less what the last contender needs to leave.
func perHandOver(r *match.Result, l match.LineUp) (requests, notifications float64, ok bool) {
	if l.Waiters == 0 {
		return 0, 0, false
	}
	for _, last := range r.Lines {
		if last.Contestant == l.Contestant && last.Waiters == 0 {
			n := float64(l.Waiters)
			return float64(l.Requests-last.Requests) / n, float64(l.Notifications-last.Notifications) / n, true
		}
	}
	return 0, 0, false
}

// What a cycle costs the ensemble.
func transactions(c match.Cell) float64 {
	return float64(c.Cost.Transactions) / float64(max(c.Cycles, 1))
}
func ensembleCPU(c match.Cell) float64 { return float64(c.Cost.CPU) / float64(max(c.Cycles, 1)) }

func rate(c match.Cell) float64     { return c.Rate }
func handOver(c match.Cell) float64 { return float64(c.HandOver.P50) }
func write(c match.Cell) float64    { return float64(c.Write.P50) }
