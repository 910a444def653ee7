// Mutants breaks the code on purpose, one way at a time, in a copy, and runs the tests that are expected to fail.
//
//	go run ./internal/mutants            # all, and the table on standard output
//	go run ./internal/mutants -only lease
//	go run ./internal/mutants -o internal/mutants/RESULT.md
//	go run ./internal/mutants -only lease -o internal/mutants/RESULT.md   # and the other lines stay
//
// The test that failed the last time, as RESULT.md has it, runs first.
//
// It exits with 1 when a mutant is not caught. A mutant that does not compile counts as an error, not as caught.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// result is the outcome of a mutant.
type result struct {
	mutant
	by    string // the test that failed; "" when none did
	took  string // in seconds
	trace string // the verdict of the model of the queue on its runs
}

func main() {
	only := flag.String("only", "", "run the mutants whose name matches this regular expression")
	out := flag.String("o", "", "write the table to this file instead of standard output")
	each := flag.Duration("timeout", 4*time.Minute, "time for each run of go test; a mutant may hang")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *out, *each); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, out string, each time.Duration) (err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	lab, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(lab)) }()
	if err := copyModule(root, lab); err != nil {
		return err
	}
	last, err := os.ReadFile(filepath.Join(root, "internal/mutants/RESULT.md"))
	if err != nil {
		return err
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	var results []result
	survived, ran := 0, false
	for _, m := range mutants {
		if !wanted.MatchString(m.name) {
			if r, ok := m.last(string(last)); ok && out != "" {
				results = append(results, r)
			}
			continue
		}
		ran = true
		m.tests = append(m.again(string(last)), m.tests...)
		r, err := m.try(ctx, lab, each)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		results = append(results, r)
		if !r.caught() {
			survived++
		}
		fmt.Fprintf(os.Stderr, "%-36s %6s s  %s; %s\n", m.name, r.took, r.test(), r.trace)
	}
	if !ran {
		return fmt.Errorf("no mutant's name matches %q", only)
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
	if _, err := io.WriteString(w, table(results)); err != nil {
		return err
	}
	if survived > 0 {
		return fmt.Errorf("%d of %d mutants were not caught", survived, len(results))
	}
	return nil
}

// In the place of the test that has noticed.
const (
	notCaught   = "NOT CAUGHT"
	noTestAlone = "only by its runs against the model"
)

// caught reports whether a test has failed.
func (r result) caught() bool { return r.by != "" || r.traced() }

// test names the test that has failed.
func (r result) test() string {
	switch {
	case r.by != "":
		return r.by
	case r.caught():
		return noTestAlone
	}
	return notCaught
}

// last finds the mutant's outcome in a table.
func (m mutant) last(table string) (r result, ok bool) {
	line := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(m.name+" | "+m.wrong) + ` \| [^|]* \| ([^|]*) \| (\d+) s \| ([^|]*) \|$`).FindStringSubmatch(table)
	if line == nil {
		return r, false
	}
	r = result{m, line[1], line[2], line[3]}
	if r.by == notCaught || r.by == noTestAlone {
		r.by = ""
	}
	return r, true
}

// again returns runs of only the test that has caught the mutant according to a table, one for each package that has
// tests for it; none if that test did not end, since another one may be faster.
func (m mutant) again(table string) (runs []string) {
	last, _ := m.last(table)
	if !strings.HasPrefix(last.by, "Test") || strings.Contains(last.by, " ") {
		return nil
	}
	for _, args := range m.tests {
		if run := fmt.Sprintf("%s -run=^%s$", strings.Fields(args)[0], last.by); !slices.Contains(runs, run) {
			runs = append(runs, run)
		}
	}
	return runs
}

// try breaks the code in lab, runs the tests, compares it with the model, and restores it.
func (m mutant) try(ctx context.Context, lab string, each time.Duration) (r result, err error) {
	file := filepath.Join(lab, m.file)
	sound, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	broken, err := m.apply(sound)
	if err != nil {
		return r, err
	}
	if err := os.WriteFile(file, broken, 0o644); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.WriteFile(file, sound, 0o644)) }()
	if text, err := goRun(ctx, lab, "build", "./"+filepath.Dir(m.file)); err != nil { // what imports it, the tests build
		return r, fmt.Errorf("does not compile: %w\n%s", err, text)
	}
	r.mutant = m
	began := time.Now()
	if r.by, err = m.test(ctx, lab, each); err != nil {
		return r, err
	}
	r.took = fmt.Sprintf("%.0f", time.Since(began).Seconds())
	r.trace, err = m.trace(ctx, lab, each)
	return r, err
}

// test runs the tests until one fails, and returns its name.
func (m mutant) test(ctx context.Context, lab string, each time.Duration) (by string, err error) {
	for _, args := range m.tests {
		began := time.Now()
		text, err := goTest(ctx, lab, args+" -failfast", each)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err != nil {
			return failure(text, args, time.Since(began) >= each)
		}
	}
	return "", nil
}

// apply returns the file with the mutant's edits made.
func (m mutant) apply(sound []byte) ([]byte, error) {
	text := string(sound)
	for _, e := range m.edits {
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s has this text %d times, want once:\n%s", m.file, n, e.old)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return []byte(text), nil
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	running    = regexp.MustCompile(`(?m)^\s+(Test\S+) \(`)                    // below "running tests:", when the time is over
	hangs      = regexp.MustCompile(`(?m)^panic: (Test\w+)\S* waits for ever`) // says the test itself
	panicked   = regexp.MustCompile(`(?m)^panic: (.*)|^fatal error: (.*)`)
)

// failure finds the test that failed in go test's output.
func failure(text, args string, late bool) (string, error) {
	if m := failedTest.FindStringSubmatch(text); m != nil {
		return m[1], nil
	}
	if m := running.FindStringSubmatch(text); m != nil && (late || strings.Contains(text, "test timed out")) {
		return m[1] + " (does not end)", nil
	}
	if m := hangs.FindStringSubmatch(text); m != nil {
		return m[1] + " (does not end)", nil
	}
	if m := panicked.FindString(text); m != "" {
		return args + ": " + m, nil
	}
	return "", fmt.Errorf("go test %s failed without a failed test:\n%s", args, text)
}

func goTest(ctx context.Context, lab, args string, each time.Duration) (string, error) {
	return goRun(ctx, lab, append([]string{"test", "-count=1", "-vet=off", "-timeout=" + each.String()}, strings.Fields(args)...)...)
}

func goRun(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func moduleRoot(ctx context.Context) (string, error) {
	text, err := goRun(ctx, ".", "env", "GOMOD")
	if err != nil {
		return "", fmt.Errorf("go env: %w: %s", err, text)
	}
	return filepath.Dir(strings.TrimSpace(text)), nil
}

// copyModule copies the files that the tests of the root module need: everything but version control and other modules.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel != "." && (d.Name() == ".git" || isModule(file)):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular(), strings.HasPrefix(rel, "go.work"): // a workspace of modules that are not copied
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// table is the record of a run in the repository.
func table(results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Mutants\n\nEach line is one way to break the code, and the first test that noticed. "+
		"Made by `go run ./internal/mutants -o internal/mutants/RESULT.md` (%s, %s/%s).\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(&b, "The last column has the result of simulated runs of the broken code, compared with the model of the queue\n(`go test %s`):\n"+
		"it %s from the model, or %s in another way, or is %s; %s where the model is not about that code.\n\n",
		traceArgs, departed, broke, accepted, notTraced)
	b.WriteString("| mutant | what is wrong with it | file | caught by | after | model |\n|---|---|---|---|---|---|\n")
	n, noticed, about := 0, 0, 0
	for _, r := range results {
		if r.caught() {
			n++
		}
		if r.traced() {
			noticed++
		}
		if r.trace != notTraced {
			about++
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s s | %s |\n", r.name, r.wrong, r.file, r.test(), r.took, r.trace)
	}
	fmt.Fprintf(&b, "\n%d of %d caught; %d of the %d that the model is about are noticed by those runs.\n", n, len(results), noticed, about)
	return b.String()
}
