package report

import (
	"fmt"

	"github.com/zklock/locker/internal/bench/match"
)

// Goal is a goal of the library, and whether this run reached it.
type Goal struct {
	What, Goal, Measured string
	Reached              bool
}

// Goals judges a run. It leaves out goals that were not measured.
func Goals(r *match.Result) []Goal {
	j := judge{r: r}
	j.alone("alone", "alone")
	for _, c := range r.Contestants {
		if c.Lock && !c.Mode && c.Name != "zklock" {
			j.faster("alone", "alone: cycles/s, × "+c.Title, c.Name, 1)
		}
	}
	j.handOver()
	j.faster("sixteen", "16 clients: cycles/s, × zk.Lock", "zk.Lock", 1.25)
	j.alone("alone-1ms", "1 ms each way, alone")
	for _, far := range []struct{ setting, title string }{{"sixteen-1ms", "16"}, {"many-1ms", "64"}} {
		j.faster(far.setting, "1 ms each way, "+far.title+" clients: cycles/s, × zk.Lock", "zk.Lock", 1.6)
		j.faster(far.setting, "1 ms each way, "+far.title+" clients: cycles/s, × Curator", "curator", 1.6)
	}
	j.constant()
	j.least("1,000 locks at once: cycles/s, × floor", 2.5,
		ratio(cells(r, "locks", "zklock"), cells(r, "locks", Floor), rate, rate))
	j.faster("locks", "1,000 locks at once: cycles/s, × zk.Lock", "zk.Lock", 4)
	j.faster("locks", "1,000 locks at once: cycles/s, × Curator", "curator", 4)
	j.least("1,000 locks at once: transactions, zk.Lock's × ours", 5,
		ratio(cells(r, "locks", "zk.Lock"), cells(r, "locks", "zklock"), transactions, transactions))
	j.least("100 locks at once: cycles/s, × floor", 1.5,
		ratio(cells(r, "hundred", "zklock"), cells(r, "hundred", Floor), rate, rate))
	return j.goals
}

type judge struct {
	r     *match.Result
	goals []Goal
}

func (j *judge) most(what string, goal, have float64) {
	if have > 0 {
		j.goals = append(j.goals, Goal{what, fmt.Sprintf("≤ %.2f", goal), fmt.Sprintf("%.2f", have), have <= goal})
	}
}

func (j *judge) least(what string, goal, have float64) {
	if have > 0 {
		j.goals = append(j.goals, Goal{what, fmt.Sprintf("≥ %.2f", goal), fmt.Sprintf("%.2f", have), have >= goal})
	}
}

// alone compares the length of a cycle: floor's rate by ours.
func (j *judge) alone(setting, what string) {
	j.most(what+": cycle, × floor", 1.05, ratio(cells(j.r, setting, Floor), cells(j.r, setting, "zklock"), rate, rate))
	j.most(what+": cycle, × floor with a list", 1.05, ratio(cells(j.r, setting, FloorWithList), cells(j.r, setting, "zklock"), rate, rate))
}

func (j *judge) faster(setting, what, than string, by float64) {
	j.least(what, by, ratio(cells(j.r, setting, "zklock"), cells(j.r, setting, than), rate, rate))
}

// handOver compares with one write of a client that is alone, as far away from the servers.
func (j *judge) handOver() {
	for _, at := range []struct{ title, setting, alone string }{{"", "sixteen", "alone"}, {"1 ms each way, ", "sixteen-1ms", "alone-1ms"}} {
		j.most(at.title+"16 clients: hand-over, × one write of the floor alone", 1.25,
			ratio(cells(j.r, at.setting, "zklock"), cells(j.r, at.alone, Floor), handOver, write))
	}
}

// growth is the permitted growth from a short line to a long one: in a short one the contenders at the end, with fewer
// waiters after them, have more weight.
const growth = 1.15

// constant compares a line of sixteen with the longest.
func (j *judge) constant() {
	var short, long *match.LineUp
	for i, l := range j.r.Lines {
		switch {
		case l.Contestant != "zklock":
		case l.Waiters == 15:
			short = &j.r.Lines[i]
		case l.Waiters > 15 && (long == nil || l.Waiters > long.Waiters):
			long = &j.r.Lines[i]
		}
	}
	if short == nil || long == nil {
		return
	}
	requests, notifications, ok := perHandOver(j.r, *short)
	if !ok {
		return
	}
	moreRequests, moreNotifications, _ := perHandOver(j.r, *long)
	compare := func(what string, a, b float64) {
		j.goals = append(j.goals, Goal{fmt.Sprintf("%s for each hand-over, %d waiting", what, long.Waiters),
			fmt.Sprintf("as %.2f with %d", a, short.Waiters), small(b), b <= a*growth})
	}
	compare("requests", requests, moreRequests)
	compare("notifications", notifications, moreNotifications)
}
