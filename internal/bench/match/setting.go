package match

import (
	"slices"
	"strings"
	"time"
)

// Setting is which clients lock what.
type Setting struct {
	Name    string        `json:"name"`
	Title   string        `json:"title"`
	Clients int           `json:"clients"` // sessions
	Workers int           `json:"workers"` // threads or goroutines in each
	Locks   int           `json:"locks"`
	Delay   time.Duration `json:"delay"` // each way
	modes   []string      // which of our modes take part
}

// Settings are in the order in which they are run and shown.
var Settings = []Setting{
	{Name: "alone", Title: "one client alone", Clients: 1, Workers: 1, Locks: 1},
	{Name: "two", Title: "2 clients, one lock", Clients: 2, Workers: 1, Locks: 1},
	{Name: "sixteen", Title: "16 clients, one lock", Clients: 16, Workers: 1, Locks: 1},
	{Name: "many", Title: "64 clients, one lock", Clients: 64, Workers: 1, Locks: 1},
	{Name: "goroutines", Title: "16 goroutines or threads of one session, one lock", Clients: 1, Workers: 16, Locks: 1, modes: []string{"local"}},
	{Name: "crowd", Title: "1,000 waiters in 20 sessions, one lock", Clients: 20, Workers: 50, Locks: 1, modes: []string{"local"}},
	{Name: "hundred", Title: "100 locks at once, one session", Clients: 1, Workers: 100, Locks: 100},
	{Name: "locks", Title: "1,000 locks at once, one session", Clients: 1, Workers: 1000, Locks: 1000},
	{Name: "alone-1ms", Title: "one client alone, 1 ms each way", Clients: 1, Workers: 1, Locks: 1, Delay: time.Millisecond},
	{Name: "sixteen-1ms", Title: "16 clients, one lock, 1 ms each way", Clients: 16, Workers: 1, Locks: 1, Delay: time.Millisecond},
	{Name: "many-1ms", Title: "64 clients, one lock, 1 ms each way", Clients: 64, Workers: 1, Locks: 1, Delay: time.Millisecond},
}

// has reports whether a contestant takes part in a setting.
func (s Setting) has(c Contestant) bool { return !c.Mode || slices.Contains(s.modes, c.Name) }

// extras are the measurements that are no race.
var extras = []string{"wire", "line", "kill"}

// wired are the settings whose traffic is counted.
var wired = []string{"alone", "two", "sixteen", "many", "goroutines", "crowd", "hundred", "locks"}

// ends are the two of them that show whether traffic grows with the number of waiters.
var ends = []string{"alone", "two", "crowd"}

// Line is a number of waiters in one line, each of which gets the lock once: the cost of a hand-over.
type Line struct{ Clients, Workers int }

// lineUps are the lengths of the lines. A line of one shows the cost of leaving without a waiter.
var lineUps = []Line{{1, 1}, {3, 1}, {16, 1}, {20, 50}}

// Names lists what -only may name.
func Names() string {
	var names []string
	for _, c := range Contestants {
		names = append(names, c.Name)
	}
	for _, s := range Settings {
		names = append(names, s.Name)
	}
	return strings.Join(append(names, extras...), " ")
}
