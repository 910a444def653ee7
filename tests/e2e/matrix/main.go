// Matrix runs the suites that talk to real servers on several versions of ZooKeeper, and prints a table.
//
//	go -C tests/e2e run ./matrix                       # the installed package, and a newer suite's where apt has one
//	go -C tests/e2e run ./matrix ~/apache-zookeeper-*  # these releases as well: each what ZOOKEEPER_HOME may name
//	go -C tests/e2e run ./matrix -quick                # without interop, hardened ensembles and chaos
//	go -C tests/e2e run ./matrix -brief                # of each suite a few tests: a minute a version
//	go -C tests/e2e run ./matrix -only zklock          # one suite
//	go -C tests/e2e run ./matrix -o matrix/RESULT.md    # the table into a file, in which rows that did not run stay
//
// A test that fails is run again, alone: what a loaded machine breaks once is told apart from what a version breaks. It
// exits with 1 when a suite fails on a version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/zklock/locker/tests/ensemble"
)

// suites are what runs on each version.
var suites = []suite{
	{name: "session", args: []string{"./session"}, brief: []string{"./session", "-run", "RealServer"}},
	{name: "recipe", args: []string{"./recipe"}},
	{name: "zklock", args: []string{"./zklock/..."}, brief: []string{"./zklock/...", "-run", "OnARealServer|OnRealServers|RealServersTell"}},
	{name: "zktest, same answers", args: []string{"./zktest", "-run", "RealServer|RealOne|RealEnsemble"},
		brief: []string{"./zktest", "-run", "ScriptsAreAnswered"}},
	{name: "hardened ensembles", args: []string{"./tests/hardened"}, long: true,
		brief: []string{"./tests/hardened", "-run", "Enforced|Observer"}},
	{name: "interop", args: []string{"./tests/interop"}, long: true},
	{name: "chaos, 20 s a workload", dir: "tests/e2e", args: []string{".", "-run", "AllFaults", "-args", "-chaos.rounds=1"}, long: true},
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
	only := flag.String("only", "", "run the `suite` alone")
	installed := flag.Bool("installed", true, "run on the installed package too")
	newer := flag.Bool("newer", true, "run on a newer Debian suite's package too, where apt has one")
	out := flag.String("o", "", "write the table to this `file` instead of standard output")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	atOnce := 1
	if *brief { // so few tests mostly wait
		atOnce = 3
	}
	if err := run(ctx, atOnce, choose(*quick, *brief, *only), *installed, *newer, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// some marks a suite of which a few tests run.
const some = " (some)"

// choose returns the suites that run, all of them whole without a flag.
func choose(quick, brief bool, only string) (chosen []suite) {
	for _, s := range suites {
		switch {
		case only != "" && s.name != only:
		case brief && s.brief != nil:
			s.name, s.args = s.name+some, s.brief
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
	passed, skipped int
	again           int      // passed the second time only
	failed          []string // twice
	took            time.Duration
	err             error // go test's own, without a failed test
}

func run(ctx context.Context, atOnce int, chosen []suite, installed, newer bool, out string, homes []string) (err error) {
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
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i, s := range chosen {
		results[i] = make([]result, len(versions))
		for j, v := range versions {
			places <- struct{}{}
			all.Go(func() {
				r := s.on(ctx, root, v)
				fmt.Fprintf(os.Stderr, "%-24s %-8s %s\n", s.name, v.version, r)
				results[i][j] = r
				<-places
			})
		}
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	bad := 0
	for _, r := range slices.Concat(results...) {
		if len(r.failed) > 0 || r.err != nil {
			bad++
		}
	}
	if err := report(out, chosen, versions, results); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d runs failed", bad, len(chosen)*len(versions))
	}
	return nil
}

// report writes the table.
func report(out string, chosen []suite, versions []server, results [][]result) error {
	rows := map[string]string{}
	if out == "" {
		_, err := fmt.Print(table(chosen, versions, results, rows))
		return err
	}
	before, err := os.ReadFile(out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if strings.Contains(string(before), head(versions)) {
		rows = rowsOf(string(before))
	}
	return os.WriteFile(out, []byte(table(chosen, versions, results, rows)), 0o644) //nolint:gosec // a page
}

// rowsOf returns the rows of a table by their suites.
func rowsOf(page string) map[string]string {
	rows := map[string]string{}
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(line, "| "); ok {
			name, _, _ = strings.Cut(name, " |")
			rows[name] = line
		}
	}
	return rows
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

// on runs the suite on one version, and what has failed once more.
func (s suite) on(ctx context.Context, root string, v server) result {
	r := s.once(ctx, root, v)
	if len(r.failed) == 0 || r.err != nil || ctx.Err() != nil {
		return r
	}
	alone := s
	alone.args = []string{s.args[0], "-run", "^(" + strings.Join(r.failed, "|") + ")$"}
	if rest := slices.Index(s.args, "-args"); rest >= 0 {
		alone.args = append(alone.args, s.args[rest:]...)
	}
	second := alone.once(ctx, root, v)
	r.again, r.failed, r.err = second.passed, second.failed, second.err
	r.passed += second.passed
	return r
}

func (s suite) once(ctx context.Context, root string, v server) result {
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
			name, _, _ := strings.Cut(strings.TrimPrefix(line, "--- FAIL: "), " ")
			r.failed = append(r.failed, name)
		case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "): // the tests behind it did not run
			r.err = errors.New(strings.TrimSpace(line))
		case strings.HasPrefix(line, "--- SKIP: "):
			r.skipped++
		}
	}
	if err != nil && len(r.failed) == 0 && r.err == nil {
		r.err = err
	}
	if err != nil {
		fmt.Fprint(os.Stderr, failures(string(text)))
	}
	return r
}

// failures leaves of go test's output what the tests that failed said, as far as a page goes.
func failures(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		start := strings.TrimLeft(line, " ")
		if !strings.HasPrefix(start, "=== ") && !strings.HasPrefix(start, "--- PASS") && !strings.HasPrefix(start, "--- SKIP") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-100):], "")
}

func (r result) String() string {
	text := fmt.Sprintf("%d passed", r.passed)
	switch {
	case r.err != nil:
		text = "**does not run**"
	case len(r.failed) > 0:
		text = fmt.Sprintf("**%d of %d failed** (%s)", len(r.failed), r.passed+len(r.failed), strings.Join(r.failed, ", "))
	}
	if r.again > 0 {
		text += fmt.Sprintf(" (%d at the second try)", r.again)
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

// table is what the repository keeps of a run, with the rows of earlier ones.
func table(chosen []suite, versions []server, results [][]result, rows map[string]string) string {
	for i, s := range chosen {
		var b strings.Builder
		fmt.Fprintf(&b, "| %s |", s.name)
		for _, r := range results[i] {
			fmt.Fprintf(&b, " %s |", r)
		}
		rows[s.name] = b.String() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Tested versions of ZooKeeper\n\nEach column is a version of real servers, each row a suite of tests that ran on it. "+
		"Made by `make matrix` (%s, %s/%s).\n\n%s", runtime.Version(), runtime.GOOS, runtime.GOARCH, head(versions))
	for _, s := range suites {
		b.WriteString(rows[s.name])
		b.WriteString(rows[s.name+some])
	}
	return b.String()
}

func head(versions []server) string {
	text := "| suite |"
	for _, v := range versions {
		text += " " + v.version + " |"
	}
	return text + "\n|---|" + strings.Repeat("---|", len(versions)) + "\n"
}
