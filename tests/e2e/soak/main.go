// Soak runs every kind of lock on three real servers while everything breaks, for as long as asked,
// and prints a line each minute: what was done, what was broken, what was lost, and what is left at
// rest.
//
//	go -C tests/e2e run ./soak -for 10m
//
// Every minute is one round (package chaos): faults for most of it, then all is healed, comes to
// rest, and is checked. It ends with status 1 when a check failed, or when what is left at rest
// grows. Servers: an ensemble named by ZKLOCK_TEST_SERVERS, else those that -on names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/zklock/locker/tests/e2e/chaos"
	"github.com/zklock/locker/tests/e2e/servers"
)

func main() {
	if code, is := chaos.Child(); is {
		os.Exit(code)
	}
	var f flags
	flag.DurationVar(&f.length, "for", 10*time.Minute, "how long to run")
	flag.StringVar(&f.on, "on", "processes",
		"servers to start: processes, containers, or any (containers where there are some)")
	flag.Uint64Var(&f.seed, "seed", rand.Uint64N(1<<40), "seed of faults and workers")
	flag.IntVar(&f.inside, "inside", 2, "clients in this process")
	flag.IntVar(&f.outside, "outside", 3, "clients in processes of their own, which can be stopped")
	flag.StringVar(&f.only, "only", "", "only the faults whose names contain this")
	flag.BoolVar(&f.overlap, "overlap", false,
		"break a server also while another one still catches up, which ZooKeeper itself does not always survive")
	flag.StringVar(&f.pictures, "pictures", "",
		"write porcupine's pictures of the last round to this `folder`")
	flag.BoolVar(&f.verbose, "v", false, "say every fault")
	flag.Parse()
	if err := soak(f); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

type flags struct {
	length          time.Duration
	on, only        string
	pictures        string
	seed            uint64
	inside, outside int
	verbose         bool
	overlap         bool
}

// faultTime is how much of a minute faults come; the rest is for coming to rest.
const faultTime = 50 * time.Second

func soak(f flags) error {
	began := time.Now()
	var all totals
	for time.Since(began) < f.length { // once, unless a round proves nothing: then on new servers
		if err := all.on(f, began); err != nil {
			return err
		}
	}
	return all.verdict(os.Stdout, f.seed)
}

// on finds servers and runs rounds on them until the time is over or one proves nothing.
func (t *totals) on(f flags, began time.Time) (err error) {
	e, err := find(f.on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	conf := chaos.Config{Ensemble: e, Inside: f.inside, Outside: f.outside, Seed: f.seed,
		Only: f.only, Overlap: f.overlap, Pictures: f.pictures}
	if f.verbose {
		conf.Out = os.Stdout
	}
	r, err := chaos.Open(conf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return t.run(r, f, began, os.Stdout)
}

func find(on string) (*servers.Ensemble, error) {
	if e, named, err := servers.Named(); named || err != nil {
		return e, err
	}
	switch on {
	case "processes":
		return servers.Local()
	case "containers":
		return servers.Containers(context.Background())
	case "any":
		e, why, err := servers.Choose(context.Background())
		if why != "" {
			fmt.Println(why)
		}
		return e, err
	}
	return nil, fmt.Errorf("-on %q: is not processes, containers or any", on)
}

// run runs rounds and prints a line for each.
func (t *totals) run(r *chaos.Run, f flags, began time.Time, out io.Writer) error {
	fmt.Fprint(out, r.Head())
	fmt.Fprintf(out, "%8s %8s %7s %6s %8s %8s %9s %8s %8s %7s %9s %9s\n",
		"time", "cycles", "faults", "lost", "unknown", "refused", "unfenced", "problems",
		"watches", "gorout.", "heap KB", "rest")
	for time.Since(began) < f.length {
		rep, err := r.Round(min(faultTime, f.length-time.Since(began)))
		if err != nil && (rep == nil || !rep.Void()) {
			return err
		}
		t.add(rep)
		fmt.Fprintf(out, "%8s %8d %7d %6d %8d %8d %9d %8d %8d %7d %9d %9s\n",
			time.Since(began).Round(time.Second), rep.Total(), rep.Faults,
			rep.Lost, rep.Unknown, rep.Refused, rep.UnfencedLosses, len(rep.Problems), rep.Watches,
			rep.Goroutines, rep.Heap>>10,
			rep.Rest.Round(10*time.Millisecond))
		if len(rep.Problems)+len(rep.Rollbacks) > 0 {
			fmt.Fprintln(out, rep)
		}
		if rep.Void() {
			return nil
		}
	}
	return nil
}

// totals sums the rounds up.
type totals struct {
	rounds, cycles, faults, lost, unknown, refused, unfenced, problems, void int
	goroutines                                                               []int
	heap                                                                     []uint64
	late                                                                     time.Duration
}

func (t *totals) add(r *chaos.Report) {
	t.rounds++
	t.cycles += r.Total()
	t.faults += r.Faults
	t.lost += r.Lost
	t.unknown += r.Unknown
	t.refused += r.Refused
	t.unfenced += r.UnfencedLosses
	if r.Void() {
		t.void++
	} else {
		t.problems += len(r.Problems)
	}
	t.late = max(t.late, r.Late)
	if r.Goroutines == 0 {
		return // it did not come to rest
	}
	t.goroutines = append(t.goroutines, r.Goroutines)
	t.heap = append(t.heap, r.Heap)
}

func (t *totals) verdict(out io.Writer, seed uint64) error {
	fmt.Fprintf(out,
		"in all: %d cycles, %d faults, %d holds lost, %d outcomes unknown, %d late writes refused\n",
		t.cycles, t.faults, t.lost, t.unknown, t.refused)
	fmt.Fprintf(out,
		"acknowledged writes lost: %d of the unfenced register; of the fenced and the Multi register: see problems\n", t.unfenced)
	fmt.Fprintf(out,
		"a context was seen alive at most %v after its SafeUntil, in a process that ran\n", t.late)
	if t.void > 0 {
		fmt.Fprintf(out,
			"in %d of %d rounds ZooKeeper itself lost acknowledged writes, or its servers disagreed for good; those rounds prove nothing\n", t.void, t.rounds)
	}
	if t.rounds == 0 {
		return errors.New("the time was over before the first round: set -for to a longer one")
	}
	if err := t.flat(); err != nil {
		return err
	}
	if t.problems > 0 {
		return fmt.Errorf("%d problems; seed %d", t.problems, seed)
	}
	fmt.Fprintln(out, "no problem, and nothing that grows")
	return nil
}

// flat compares the last minutes with the first.
func (t *totals) flat() error {
	// minutes, until every connection has been replaced and every buffer has its size
	const begin = 3
	if len(t.goroutines) < 2*begin {
		return nil
	}
	first, last := slices.Max(t.goroutines[:begin]), slices.Min(
		t.goroutines[len(t.goroutines)-begin:])
	if last > first*3/2+20 {
		return fmt.Errorf(
			"goroutines grow: at most %d in the first %d minutes, and at least %d in the last", first, begin, last)
	}
	if first, last := slices.Max(t.heap[:begin]),
		slices.Min(t.heap[len(t.heap)-begin:]); last > first*2+8<<20 {
		return fmt.Errorf(
			"the heap grows: at most %d KB in the first %d minutes, and at least %d KB in the last", first>>10, begin, last>>10)
	}
	return nil
}
