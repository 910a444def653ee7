package match

import (
	"strings"
	"time"
)

// Setting is which clients lock what.
type Setting struct {
	Name    string // short, for -only
	Title   string
	Clients int // sessions
	Workers int // threads or goroutines in each
	Locks   int
	Delay   time.Duration // each way
}

// Settings are in the order in which they are run and shown.
var Settings = []Setting{
	{Name: "alone", Title: "one client alone", Clients: 1, Workers: 1, Locks: 1},
	{Name: "two", Title: "2 clients, one lock", Clients: 2, Workers: 1, Locks: 1},
	{Name: "sixteen", Title: "16 clients, one lock", Clients: 16, Workers: 1, Locks: 1},
	{Name: "sixteen-1ms", Title: "16 clients, 1 ms each way", Clients: 16, Workers: 1, Locks: 1,
		Delay: time.Millisecond},
	{Name: "many-1ms", Title: "64 clients, 1 ms each way", Clients: 64, Workers: 1, Locks: 1,
		Delay: time.Millisecond},
	{Name: "goroutines", Title: "16 goroutines of one session", Clients: 1, Workers: 16, Locks: 1},
	{Name: "crowd", Title: "1,000 waiters, 20 sessions", Clients: 20, Workers: 50, Locks: 1},
	{Name: "crowd-1ms", Title: "1,000 waiters, 1 ms each way", Clients: 20, Workers: 50, Locks: 1,
		Delay: time.Millisecond},
	{Name: "hundred", Title: "100 locks at once, one session", Clients: 1, Workers: 100,
		Locks: 100},
	{Name: "locks", Title: "1,000 locks at once, one session", Clients: 1, Workers: 1000,
		Locks: 1000},
}

// has reports whether a contestant takes part: the floor with one client alone, since others'
// requests may go together, and WithLocalHandoff where it matters.
func (s Setting) has(c Contestant) bool {
	switch c.Name {
	case Floor:
		return s.Clients*s.Workers == 1
	case local:
		return s.Name == "goroutines"
	}
	return true
}

// Names lists what -only may name.
func Names() string {
	var names []string
	for _, c := range Contestants {
		names = append(names, c.Name)
	}
	for _, s := range Settings {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}
