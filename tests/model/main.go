// Model checks three models of the locks in full, by spin: the queue (queue.pml), a semaphore's
// wake-ups (semaphore.pml) and the lease (lease.pml). Then it breaks them, one way at a time, and
// expects spin to find each defect.
//
//	go run ./tests/model                          # all, and the table on standard output
//	go run ./tests/model -only lease
//	go run ./tests/model -o tests/model/result.txt
//
// Spin writes a checker for each configuration, which visits every reachable state and keeps each
// of them whole: no hashing, no reduction. Needs spin and gcc (Debian: apt-get install spin gcc
// libc6-dev), 2 GB and some minutes. It exits with 1 when a model breaks one of its promises, or a
// mutant keeps them all.
package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"time"
)

//go:embed *.pml
var models embed.FS

// result is the result of spin's checker.
type result struct {
	states, transitions, depth int
	broken                     string // the promise that does not hold; "" when all hold
	took                       time.Duration
}

func main() {
	only := flag.String("only", "",
		"check the configurations and mutants whose model or name contains this")
	out := flag.String("o", "", "write the table to this file instead of standard output")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, out string) error {
	results := map[string]result{}
	var wrong error
	checked := 0
	for _, c := range append(configurations[:len(configurations):len(configurations)], mutants...) {
		if !strings.Contains(c.model+" "+c.name, only) {
			continue
		}
		checked++
		r, err := c.check(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		results[c.name] = r
		verdict := "holds"
		if r.broken != "" {
			verdict = r.broken + " is broken"
		}
		fmt.Fprintf(os.Stderr, "%-6s %-40s %10d states %6.1f s  %s\n", c.model, c.name, r.states,
			r.took.Seconds(), verdict)
		if (r.broken != "") != (c.wrong != "") {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %s", c.name, verdict))
		}
	}
	if checked == 0 {
		return fmt.Errorf("nothing's name contains %q", only)
	}
	if wrong != nil {
		return wrong
	}
	if out == "" {
		_, err := io.WriteString(os.Stdout, table(results))
		return err
	}
	return os.WriteFile(out, []byte(table(results)), 0o644)
}

// check lets spin write a checker for the configuration, and runs it.
func (c configuration) check(ctx context.Context) (r result, err error) {
	began := time.Now()
	lab, err := os.MkdirTemp("", "model-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(lab)) }()
	if err := os.CopyFS(lab, models); err != nil {
		return r, err
	}
	if out, err := command(ctx, lab, "spin",
		append(strings.Fields(c.parameters), "-a", c.model+".pml")...); err != nil {
		return r, fmt.Errorf("spin: %w\n%s", err, out)
	}
	if c.endless() {
		r, err = search(ctx, lab, "-DNFAIR=4", "-a", "-f") // -f: each client goes on
		r.took = time.Since(began)
		return r, err
	}
	r, err = search(ctx, lab, "-DSAFETY")
	if err == nil && r.broken == "" && c.bounded() {
		var cycles result
		cycles, err = search(ctx, lab, "-DNP", "-l")
		r.broken = cycles.broken
	}
	r.took = time.Since(began)
	return r, err
}

// search compiles spin's checker in the lab, and runs it.
func search(ctx context.Context, lab, mode string, flags ...string) (result, error) {
	// No reduction: the number of states is the model's, not the method's.
	if out, err := command(ctx, lab, "gcc", "-O1", "-w", mode, "-DNOREDUCE", "-DMEMLIM=6000", "-o",
		"checker", "pan.c"); err != nil {
		return result{}, fmt.Errorf("gcc: %w\n%s", err, out)
	}
	out, err := command(ctx, lab, "./checker", append(flags, "-m4000000")...)
	if err != nil {
		return result{}, fmt.Errorf("checker: %w\n%s", err, out)
	}
	return parse(out)
}

var (
	stored      = regexp.MustCompile(`(\d+) states, stored`)
	transitions = regexp.MustCompile(`(?m)^\s*([\d.e+]+) transitions`)
	reached     = regexp.MustCompile(`depth reached (\d+), errors: (\d+)`)
	violated    = regexp.MustCompile(`assertion violated (.*) \(at depth`)
)

// parse reads a checker's report. An incomplete search that has found nothing is an error.
func parse(out string) (result, error) {
	var r result
	var err error
	number := func(re *regexp.Regexp, n int) int {
		m := re.FindStringSubmatch(out)
		if m == nil {
			err = fmt.Errorf("the checker's report lacks %q:\n%s", re, out)
			return 0
		}
		f, parseErr := strconv.ParseFloat(m[n], 64)
		err = errors.Join(err, parseErr)
		return int(f)
	}
	r.states, r.transitions, r.depth = number(stored, 1), number(transitions, 1), number(reached, 1)
	failed := number(reached, 2)
	if err != nil {
		return r, err
	}
	if failed > 0 {
		m := violated.FindStringSubmatch(out)
		if m == nil && strings.Contains(out, "non-progress cycle") {
			r.broken = "every run ends"
			return r, nil
		}
		if m == nil && strings.Contains(out, "acceptance cycle") {
			r.broken = "somebody leads"
			return r, nil
		}
		if m == nil {
			return r, fmt.Errorf("an error that is no assertion's:\n%s", out)
		}
		for _, p := range promises {
			if strings.Contains(strings.ReplaceAll(m[1], " ", ""), p.assertion) {
				r.broken = p.name
				return r, nil
			}
		}
		return r, fmt.Errorf("an assertion that is no promise: %s", m[1])
	}
	if strings.Contains(out, "Search not completed") ||
		strings.Contains(out, "max search depth too small") {
		return r, fmt.Errorf("the search was not complete:\n%s", out)
	}
	return r, nil
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// table is the record of a run in the repository.
func table(results map[string]result) string {
	var b strings.Builder
	b.WriteString("# Models\n\nChecked in full by spin; made by `make model`. " +
		"[queue.pml](queue.pml), [semaphore.pml](semaphore.pml) and [lease.pml](lease.pml) say what they model and what holds in every state.\n\n" +
		"| model | configuration | what happens in it | parameters | states | transitions | longest run searched |\n|---|---|---|---|--:|--:|--:|\n")
	for _, c := range configurations {
		if r, ok := results[c.name]; ok {
			fmt.Fprintf(&b, "| %s | %s | %s | `%s` | %d | %d | %d |\n", c.model, c.name, c.what,
				c.parameters, r.states, r.transitions, r.depth)
		}
	}
	b.WriteString(
		"\nEach line below is one way to break a model, and the promise that it breaks.\n\n" +
			"| model | mutant | what is wrong with it | breaks | found after |\n|---|---|---|---|--:|\n")
	for _, c := range mutants {
		if r, ok := results[c.name]; ok {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %d states |\n", c.model, c.name, c.wrong,
				r.broken, r.states)
		}
	}
	return b.String()
}
