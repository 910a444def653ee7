package match

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/zklock/locker/internal/bench/servers"
	"github.com/zklock/locker/internal/bench/stats"
)

// Config says what to measure, and for how long.
type Config struct {
	Self    string                            // the program that becomes a Go contestant when started with -contestant
	Source  func(name string) ([]byte, error) // the programs in other languages
	Command string                            // for the result
	Only    []string                          // names of contestants and settings; empty: all
	Rounds  int
	Run     time.Duration // of each measurement
	Warm    time.Duration // before each measurement
	First   time.Duration // before the first one: a virtual machine compiles hot code meanwhile
	Expiry  time.Duration // the session timeout of a holder that is killed
	Brief   bool          // leave out intermediate settings
	Small   bool          // tens instead of hundreds and thousands: to check that everything works
	Servers servers.Config
	Log     func(format string, args ...any)
}

// Timeout is the session timeout of all contestants.
const Timeout = 10 * time.Second

// slack is how long a measurement may take beyond its own time: until a thousand waiters had the lock once, in Python.
const slack = 3 * time.Minute

// run is a Run under way.
type run struct {
	Config
	site     *servers.Site
	tools    tools
	taking   []Contestant
	settings []Setting
	children map[string]*child
	paths    int
	r        *Result
}

// Run does all measurements and returns the result. A contestant that fails in one of them is noted and continues with
// the next; the error is of everything else. When ctx ends, Run returns what has been measured so far, with ctx's
// error.
func Run(ctx context.Context, c Config) (res *Result, err error) {
	m := &run{Config: c, children: map[string]*child{}, r: &Result{Command: c.Command, Began: time.Now(), Machine: machine(),
		Rounds: c.Rounds, Seconds: c.Run.Seconds()}}
	all, settings, err := find(c.Only)
	if err != nil {
		return nil, err
	}
	m.settings = scaled(settings, c.Small)
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if m.tools, err = newTools(c.Self, dir, c.Source); err != nil {
		return nil, err
	}
	if m.site, err = servers.Open(ctx, m.Servers); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.site.Close()) }()
	defer m.endAll()
	m.r.Notes = m.site.Notes
	for _, one := range all {
		if why := one.missing(ctx, m.tools, m.site); why != nil {
			m.r.Left = append(m.r.Left, fmt.Sprintf("%s: %v", one.Title, why))
			continue
		}
		m.taking = append(m.taking, one)
	}
	m.r.Contestants, m.r.Settings = m.taking, m.settings
	m.all(ctx)
	m.r.Took = time.Since(m.r.Began).Seconds()
	return m.r, ctx.Err()
}

// all is every measurement.
func (m *run) all(ctx context.Context) {
	m.r.Load[0] = loadAverage()
	if len(m.settings) > 0 {
		m.warmUp(ctx)
	}
	for round := range m.Rounds {
		for _, s := range m.settings {
			m.Log("round %d of %d: %s", round+1, m.Rounds, s.Title)
			for i := range m.taking {
				// The first contestant of one round is the second of the next.
				if c := m.taking[(i+round)%len(m.taking)]; s.has(c) && ctx.Err() == nil {
					m.cell(ctx, s, c, round)
				}
			}
		}
	}
	m.r.Load[1] = loadAverage()
	if m.wants("wire") {
		m.wires(ctx)
	}
	m.endAll()
	if m.wants("line") {
		m.lineUps(ctx)
	}
	if m.wants("kill") {
		m.kills(ctx)
	}
}

// wants reports whether an extra was asked for: by name, or with everything.
func (m *run) wants(extra string) bool {
	named := false
	for _, name := range m.Only {
		if name == extra {
			return true
		}
		for _, s := range Settings {
			named = named || s.Name == name
		}
		for _, e := range extras {
			named = named || e == name
		}
	}
	return !named
}

// scaled makes settings small.
func scaled(settings []Setting, small bool) []Setting {
	var out []Setting
	for _, s := range settings {
		if small {
			s.Clients, s.Workers, s.Locks = min(s.Clients, 4), min(s.Workers, 8), min(s.Locks, 8)
		}
		out = append(out, s)
	}
	return out
}

// child returns the contestant's process, started if need be.
func (m *run) child(c Contestant) (*child, error) {
	if ch := m.children[c.Name]; ch != nil {
		return ch, nil
	}
	ch, err := start(c, m.tools)
	if err == nil {
		m.children[c.Name] = ch
	}
	return ch, err
}

// failed notes a failure. The process may be in any state: the next measurement gets a new one.
func (m *run) failed(ctx context.Context, c Contestant, where string, err error) {
	if ctx.Err() != nil {
		return // all processes are being ended
	}
	m.r.Failures = append(m.r.Failures, fmt.Sprintf("%s, %s: %v", c.Title, where, err))
	m.Log("FAILED: %s", m.r.Failures[len(m.r.Failures)-1])
	if ch := m.children[c.Name]; ch != nil {
		delete(m.children, c.Name)
		ch.kill()
		ch.end()
	}
}

func (m *run) endAll() {
	for name, ch := range m.children {
		delete(m.children, name)
		ch.end()
	}
}

// path returns a path that was not used before.
func (m *run) path() string {
	m.paths++
	return fmt.Sprintf("/bench-%d-%d", m.r.Began.Unix(), m.paths)
}

// warmUp runs the operations that the measurements need for a while.
func (m *run) warmUp(ctx context.Context) {
	for _, c := range m.taking {
		if c.Mode || ctx.Err() != nil {
			continue
		}
		m.Log("warming up: %s", c.Title)
		for _, s := range []Setting{{Clients: 4, Workers: 4, Locks: 1}, {Clients: 1, Workers: 1, Locks: 1}} {
			if _, _, err := m.race(ctx, s, c, 0, servers.Way{}, 0, m.First/2); err != nil {
				m.failed(ctx, c, "warming up", err)
				break
			}
		}
	}
}

// cell is one measurement.
func (m *run) cell(ctx context.Context, s Setting, c Contestant, round int) {
	ops, w, err := m.race(ctx, s, c, round, servers.Way{Delay: s.Delay}, m.Warm, m.Run)
	if err == nil {
		f := stats.Of(ops, w.Window, c.Lock)
		if f.Overlaps > 0 {
			err = fmt.Errorf("%d times two had the lock at once", f.Overlaps)
		}
		if f.Cycles == 0 {
			err = errors.New("no cycle came to an end in time")
		}
		if err == nil {
			m.r.Cells = append(m.r.Cells, Cell{s.Name, c.Name, round, loadAverage(), f, w.Cost})
			m.Log("  %-42s %9.0f/s  acquire %8v %8v  hand-over %8v %8v", c.Title, f.Rate, short(f.Acquire.P50), short(f.Acquire.P99), short(f.HandOver.P50), short(f.HandOver.P99))
			return
		}
	}
	m.failed(ctx, c, s.Title, err)
}

func short(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

// measured is the time that counted, and the traffic through the taps during it.
type measured struct {
	stats.Window
	servers.Traffic
	servers.Cost
}

// race has a contestant run a setting.
func (m *run) race(ctx context.Context, s Setting, c Contestant, round int, way servers.Way, warm, run time.Duration) (ops []stats.Op, w measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, warm+run+slack)
	defer cancel()
	addrs, err := m.site.Addrs(c.Kind, way)
	if err != nil {
		return nil, w, err
	}
	ch, err := m.child(c)
	if err != nil {
		return nil, w, err
	}
	if err := ch.send("run %s %d %d %s %d %d %d %d %d", strings.Join(addrs, ","), round, Timeout.Milliseconds(), m.path(),
		s.Clients, s.Workers, s.Locks, warm.Milliseconds(), run.Milliseconds()); err != nil {
		return nil, w, err
	}
	if _, err := ch.expect(ctx, "opened"); err != nil {
		return nil, w, err
	}
	var start, end answer
	var before, after servers.Traffic
	var cost [2]servers.Cost
	if start, err = ch.expect(ctx, "start"); err == nil {
		before = m.traffic(c, start)
		cost[0] = m.cost(c)
		if end, err = ch.expect(ctx, "end"); err == nil {
			after = m.traffic(c, end)
			cost[1] = m.cost(c)
			ops, _, err = ch.ops(ctx)
		}
	}
	if err != nil || len(start.numbers) == 0 || len(end.numbers) == 0 {
		return nil, w, errors.Join(err)
	}
	return ops, measured{stats.Window{Start: start.numbers[0], End: end.numbers[0]}, after.Less(before), cost[1].Less(cost[0])}, nil
}

// cost is the ensemble's work so far; nothing if that is unknown.
func (m *run) cost(c Contestant) servers.Cost {
	cost, known, err := m.site.Cost(c.Kind)
	if err != nil {
		m.Log("what it costs the ensemble is not known: %v", err)
	}
	if !known {
		return servers.Cost{}
	}
	return cost
}

// traffic is what has passed so far: by the taps, or where they can't read it, by the contestant's own counts.
func (m *run) traffic(c Contestant, a answer) servers.Traffic {
	t := m.site.Traffic(c.Kind)
	if n := len(a.numbers); n >= 2 && c.Kind == servers.Etcd {
		t.Requests, t.Notifications = a.numbers[n-2], a.numbers[n-1]
	}
	return t
}

// loadAverage is the machine's load average over the last minute; zero where it can't be known.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	f, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return f
}

// machine describes the machine that was measured.
func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.SplitSeq(string(text), "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, %s", model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
