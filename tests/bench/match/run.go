package match

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/zklock/locker/tests/bench/servers"
	"github.com/zklock/locker/tests/bench/stats"
)

// Config says what to measure, and for how long.
type Config struct {
	Only    []string // names of contestants and settings; empty: all
	Rounds  int
	Run     time.Duration // of each measurement
	Warm    time.Duration // before each measurement
	First   time.Duration // of each contestant's warm-up, before the first one
	Servers servers.Config
	Log     func(format string, args ...any)
}

// Result is everything that was measured.
type Result struct {
	Config
	Machine     string
	Notes       []string // what is to be known about the servers when reading the figures
	Left        []string // contestants that could not take part, and why
	Contestants []Contestant
	Settings    []Setting
	Cells       map[string][]stats.Figures // of each round, by Key
	Failures    []string
}

// Key is the key of Result's Cells.
func Key(s Setting, c Contestant) string { return s.Name + " " + c.Name }

// timeout is the session timeout of all contestants.
const timeout = 10 * time.Second

// slack is how long a measurement may take beyond its own time: until a thousand waiters had the
// lock once, in Python.
const slack = 3 * time.Minute

// run is a Run under way.
type run struct {
	Result
	site     *servers.Site
	dir      string // the programs in other languages, and their classes
	children map[string]*child
	paths    int
}

// Run does all measurements and returns the result. A contestant that fails in one of them is noted
// and continues with the next; the error is of everything else. When ctx ends, Run returns what has
// been measured so far, with ctx's error.
func Run(ctx context.Context, c Config) (res *Result, err error) {
	m := &run{Result: Result{Config: c, Machine: machine(), Cells: map[string][]stats.Figures{}},
		children: map[string]*child{}}
	var all []Contestant
	if all, m.Settings, err = find(c.Only); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m.dir = filepath.Join(dir, "testdata")
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, err
	}
	if m.site, err = servers.Open(ctx, c.Servers); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.site.Close()) }()
	defer m.endAll()
	m.Notes = m.site.Notes
	for _, one := range all {
		if why := one.missing(ctx, m.dir, m.site); why != nil {
			m.Left = append(m.Left, fmt.Sprintf("left out: %s: %v", one.Title, why))
			continue
		}
		m.Contestants = append(m.Contestants, one)
	}
	m.warmUp(ctx)
	for round := range c.Rounds {
		for _, s := range m.Settings {
			m.Log("round %d of %d: %s", round+1, c.Rounds, s.Title)
			for i := range m.Contestants {
				// The first contestant of one round is the second of the next.
				if c := m.Contestants[(i+round)%len(m.Contestants)]; s.has(c) && ctx.Err() == nil {
					m.cell(ctx, s, c, round)
				}
			}
		}
	}
	return &m.Result, ctx.Err()
}

// warmUp has each contestant lock for a while, contended and free, at every server: servers and
// contestants in Java run on virtual machines, which compile their hot code meanwhile.
func (m *run) warmUp(ctx context.Context) {
	for _, c := range m.Contestants {
		if ctx.Err() != nil {
			return
		}
		m.Log("warming up: %s", c.Title)
		contended := Setting{Clients: 4, Workers: 4, Locks: 1}
		free := Setting{Clients: 3, Workers: 1, Locks: 3} // a client at each server
		for _, s := range []Setting{contended, free} {
			if _, err := m.race(ctx, s, c, 0, 0, m.First/2); err != nil {
				m.failed(ctx, c, "warming up", err)
				break
			}
		}
	}
}

// cell is one measurement.
func (m *run) cell(ctx context.Context, s Setting, c Contestant, round int) {
	r, err := m.race(ctx, s, c, round, m.Warm, m.Run)
	f := stats.Of(r.ops, r.during, r.cost)
	if err == nil && f.Rate == 0 {
		err = errors.New("no cycle came to an end in time")
	}
	if err != nil {
		m.failed(ctx, c, s.Title, err)
		return
	}
	m.Cells[Key(s, c)] = append(m.Cells[Key(s, c)], f)
	m.Log("  %-42s %9.0f/s  acquire %8v  hand-over %8v", c.Title, f.Rate,
		f.Acquire.Round(time.Microsecond), f.HandOver.Round(time.Microsecond))
}

// race has a contestant run a setting.
func (m *run) race(
	ctx context.Context, s Setting, c Contestant, round int, warm, run time.Duration,
) (raced, error) {
	ctx, cancel := context.WithTimeout(ctx, warm+run+slack)
	defer cancel()
	addrs, err := m.site.Addrs(c.Kind, s.Delay)
	if err != nil {
		return raced{}, err
	}
	if m.children[c.Name] == nil {
		if m.children[c.Name], err = m.start(c); err != nil {
			delete(m.children, c.Name)
			return raced{}, err
		}
	}
	m.paths++ // a path that was not used before
	return m.children[c.Name].do(ctx,
		fmt.Sprintf("run %s %d %d /bench-%d %d %d %d %d %d", strings.Join(addrs, ","), round,
			timeout.Milliseconds(),
			m.paths, s.Clients, s.Workers, s.Locks, warm.Milliseconds(), run.Milliseconds()))
}

// failed notes a failure. The process may be in any state: the next measurement gets a new one.
func (m *run) failed(ctx context.Context, c Contestant, where string, err error) {
	if ctx.Err() != nil {
		return // all processes are being ended
	}
	m.Failures = append(m.Failures, fmt.Sprintf("FAILED: %s, %s: %v", c.Title, where, err))
	m.Log("%s", m.Failures[len(m.Failures)-1])
	if ch := m.children[c.Name]; ch != nil {
		delete(m.children, c.Name)
		ch.kill()
		ch.end()
	}
}

func (m *run) endAll() {
	for _, ch := range m.children {
		ch.end()
	}
}

// machine describes the machine that was measured.
func machine() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	model := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(text)
	if err != nil || model == nil {
		model = [][]byte{nil, []byte("unknown processor")}
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, %s", model[1], runtime.NumCPU(), runtime.GOOS,
		runtime.GOARCH, runtime.Version())
}
