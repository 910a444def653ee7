// Matrix runs the suites that talk to real servers on several versions of ZooKeeper, and prints a table.
//
//	go -C internal/e2e run ./matrix                       # the installed package, and a newer suite's where apt has one
//	go -C internal/e2e run ./matrix ~/apache-zookeeper-*  # these releases as well: each what ZOOKEEPER_HOME may name
//	go -C internal/e2e run ./matrix -quick                # without interop, hardened ensembles and chaos
//	go -C internal/e2e run ./matrix -brief                # of each suite a few tests: a minute or two a version
//	go -C internal/e2e run ./matrix -o docs/versions.md   # the table into a file
//
// It exits with 1 when a suite fails on a version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/zklock/locker/internal/ensemble"
)

// suites are what runs on each version.
var suites = []suite{
	{name: "session", args: []string{"./session"}, brief: []string{"./session", "-run", "RealServer"}},
	{name: "recipe", args: []string{"./recipe"}},
	{name: "zklock", args: []string{"./zklock/..."}, brief: []string{"./zklock/...", "-run", "RealServer"}},
	{name: "zktest, same answers", args: []string{"./zktest", "-run", "RealServer|RealOne|RealEnsemble"},
		brief: []string{"./zktest", "-run", "ScriptsAreAnswered|SignsOfLife"}},
	{name: "hardened ensembles", args: []string{"./internal/hardened"}, long: true,
		brief: []string{"./internal/hardened", "-run", "Closed|Enforced|Observer|Certificates"}},
	{name: "interop", args: []string{"./internal/interop"}, long: true},
	{name: "chaos, 20 s a workload", dir: "internal/e2e", args: []string{".", "-run", "Everything", "-args", "-chaos.rounds=1"}, long: true},
}

type suite struct {
	name string
	dir  string // of its module, below the root
	args []string
	long bool

	brief []string // args for a few of its tests; nil: none
}

func main() {
	quick := flag.Bool("quick", false, "leave out the suites that take minutes")
	brief := flag.Bool("brief", false, "run a few tests of each suite")
	installed := flag.Bool("installed", true, "run on the installed package too")
	newer := flag.Bool("newer", true, "run on a newer Debian suite's package too, where apt has one")
	out := flag.String("o", "", "write the table to this file instead of standard output")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, choose(*quick, *brief), *installed, *newer, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// choose returns the suites that run, all of them whole without a flag.
func choose(quick, brief bool) (chosen []suite) {
	for _, s := range suites {
		switch {
		case brief && s.brief != nil:
			s.name, s.args = s.name+" (some)", s.brief
			chosen = append(chosen, s)
		case !brief && (!s.long || !quick):
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// server is one version of the servers' software.
type server struct{ home, version string }

// result is what became of a suite on a version.
type result struct {
	passed, failed, skipped int
	took                    time.Duration
	err                     error // go test's own, without a failed test
}

func run(ctx context.Context, chosen []suite, installed, newer bool, out string, homes []string) (err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if installed {
		homes = append([]string{""}, homes...)
	}
	if newer {
		home, err := exec.CommandContext(ctx, filepath.Join(root, "scripts/newer.sh")).Output() // it says itself why not
		if err == nil {
			homes = append(homes, strings.TrimSpace(string(home)))
		}
	}
	var versions []server
	for _, home := range homes {
		version, err := ask(home)
		if err != nil {
			return err
		}
		versions = append(versions, server{home, version})
	}
	if len(versions) == 0 {
		return errors.New("no servers to run on")
	}
	results := make([][]result, len(chosen))
	bad := 0
	for i, s := range chosen {
		for _, v := range versions {
			r := s.on(ctx, root, v)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if r.failed > 0 || r.err != nil {
				bad++
			}
			fmt.Fprintf(os.Stderr, "%-24s %-8s %s\n", s.name, v.version, r)
			results[i] = append(results[i], r)
		}
	}
	w := io.Writer(os.Stdout)
	if out != "" {
		f, err := os.Create(out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		w = f
	}
	if _, err := io.WriteString(w, table(chosen, versions, results)); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d runs failed", bad, len(chosen)*len(versions))
	}
	return nil
}

// ask starts a server of the software that home names and asks for its version.
func ask(home string) (version string, err error) {
	if err := os.Setenv("ZOOKEEPER_HOME", home); err != nil {
		return "", err
	}
	e, err := ensemble.Open(1)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return e.Nodes[0].Version()
}

// on runs the suite on one version.
func (s suite) on(ctx context.Context, root string, v server) result {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-v", "-count=1", "-p=1", "-timeout=30m"}, s.args...)...)
	cmd.Dir = filepath.Join(root, s.dir)
	cmd.Env = append(os.Environ(), "ZOOKEEPER_HOME="+v.home)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()
	r := result{took: time.Since(began)}
	for line := range strings.Lines(string(text)) { // of the tests themselves, not of their parts
		switch {
		case strings.HasPrefix(line, "--- PASS: "):
			r.passed++
		case strings.HasPrefix(line, "--- FAIL: "):
			r.failed++
			fmt.Fprintf(os.Stderr, "  %s", line)
		case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "): // the tests behind it did not run
			r.err = errors.New(strings.TrimSpace(line))
		case strings.HasPrefix(line, "--- SKIP: "):
			r.skipped++
		}
	}
	if err != nil && r.failed == 0 && r.err == nil {
		r.err = err
	}
	if r.err != nil {
		fmt.Fprintf(os.Stderr, "%s", text[max(0, len(text)-4000):])
	}
	return r
}

func (r result) String() string {
	text := fmt.Sprintf("%d passed", r.passed)
	switch {
	case r.err != nil:
		text = "**does not run**"
	case r.failed > 0:
		text = fmt.Sprintf("**%d of %d failed**", r.failed, r.passed+r.failed)
	}
	if r.skipped > 0 {
		text += fmt.Sprintf(", %d skipped", r.skipped)
	}
	return fmt.Sprintf("%s, %.0f s", text, r.took.Seconds())
}

func moduleRoot(ctx context.Context) (string, error) {
	text, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// table is what the repository keeps of a run.
func table(chosen []suite, versions []server, results [][]result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Tested versions of ZooKeeper\n\nEach column is a version of real servers, each row a suite of tests that ran on it. "+
		"Made by `make matrix` (%s, %s/%s).\n\n| suite |", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, v := range versions {
		fmt.Fprintf(&b, " %s |", v.version)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(versions)) + "\n")
	for i, s := range chosen {
		fmt.Fprintf(&b, "| %s |", s.name)
		for _, r := range results[i] {
			fmt.Fprintf(&b, " %s |", r)
		}
		b.WriteString("\n")
	}
	return b.String()
}
