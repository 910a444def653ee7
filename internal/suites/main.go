// Suites runs other projects' own tests against zktest, in place of the ZooKeeper that they start, and prints the
// results.
//
//	go run ./internal/suites                       # Kazoo's, go-zookeeper's, and Curator's of locks
//	go run ./internal/suites -only kazoo -v        # one of them, with its output
//	go run ./internal/suites -like 3.8             # on the behaviour of another version
//	go run ./internal/suites -kazoo ~/kazoo        # the tests of a checkout
//	go run ./internal/suites -curator ~/curator    # those of a checkout of the release that is installed
//
// Nothing of these projects is part of this one. Kazoo's tests come with Debian's package python3-kazoo, and pytest, if
// it is not installed, is fetched through apt into a folder of its own; go-zookeeper's come with its module, through
// the Go proxy; Curator's are cloned from its repository, and compiled with the jars and JUnit of Debian's packages.
// All start their servers as processes: in place of java and zkServer.sh they get a program of this command, which
// forwards connections to zktest's servers in the process that runs the suites, and stops a server when it is killed.
//
// It exits with 1 when a suite could not be run. A test that fails is a line of the report, not an error: some need
// features that zktest does not have (a super user, reconfig, read-only servers). Curator's get three tries, as in its
// own build.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/zklock/locker/zktest"
)

// suite is another project's tests.
type suite struct {
	name string
	run  func(ctx context.Context, w *workshop) (report, error)
}

var suites = []suite{{"kazoo", kazoo}, {"go-zookeeper", goZooKeeper}, {"curator", curator}}

// report is the result of a suite.
type report struct {
	version         string // of the project
	passed, skipped int
	failed          []string
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "stand-in" {
		if err := standIn(os.Getenv(controlVariable), os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, "stand-in:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		stop()
		os.Exit(1)
	}
}

// workshop is the environment that the suites run in.
type workshop struct {
	dir     string // for files, removed at the end
	control string // the address of the servers' controller
	like    zktest.Version
	kazoo   string // a directory with Kazoo's package
	curator string // a checkout of Curator's release; empty: it is cloned
	java    string // the real one
	limit   time.Duration
	output  io.Writer // of the suites
}

func command(ctx context.Context) (err error) {
	w := &workshop{output: io.Discard}
	like := flag.String("like", string(zktest.Version38), "the `version` that zktest behaves like")
	only := flag.String("only", "", "run this `suite` alone")
	verbose := flag.Bool("v", false, "show the suites' output")
	flag.StringVar(&w.kazoo, "kazoo", "/usr/lib/python3/dist-packages", "the `directory` that holds Kazoo's package")
	flag.StringVar(&w.curator, "curator", "", "a checkout of the release of Curator that is installed, in this `directory`; default: it is cloned")
	flag.DurationVar(&w.limit, "limit", 20*time.Minute, "end a suite after this long")
	flag.Parse()
	if *verbose {
		w.output = os.Stderr
	}
	w.like = zktest.Version(*like)
	if w.dir, err = os.MkdirTemp("", "suites"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(w.dir)) }()
	servers, err := newController(w.like)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.close()) }()
	w.control = servers.addr()
	if w.java, err = exec.LookPath("java"); err != nil {
		return err
	}
	if err := w.program("java", "zkServer.sh"); err != nil {
		return err
	}
	fmt.Printf("| suite | passed | failed | skipped | took | on zktest %s, failed |\n|---|---|---|---|---|---|\n", w.like)
	var failed error
	for _, s := range suites {
		if *only != "" && *only != s.name {
			continue
		}
		bounded, done := context.WithTimeout(ctx, w.limit)
		began := time.Now()
		r, err := s.run(bounded, w)
		done()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		slices.Sort(r.failed)
		fmt.Printf("| %s %s | %d | %d | %d | %v | %s |\n", s.name, r.version, r.passed, len(r.failed), r.skipped,
			time.Since(began).Round(time.Second), strings.Join(r.failed, ", "))
	}
	return failed
}

// program puts programs of these names into the workshop's bin: all are this program's stand-in.
func (w *workshop) program(names ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Mkdir(w.bin(), 0o755); err != nil {
		return err
	}
	for _, name := range names {
		script := fmt.Sprintf("#!/bin/sh\nexec %q stand-in \"$@\"\n", self)
		if err := os.WriteFile(filepath.Join(w.bin(), name), []byte(script), 0o755); err != nil { //nolint:gosec // it is a program
			return err
		}
	}
	return nil
}

// debian fetches packages into a directory of the workshop, and returns where they are unpacked.
func (w *workshop) debian(ctx context.Context, packages []string) (root string, err error) {
	dir, err := os.MkdirTemp(w.dir, "debian")
	if err != nil {
		return "", err
	}
	fetch := exec.CommandContext(ctx, "apt-get", append([]string{"-qq", "-o", "APT::Sandbox::User=root", "download"}, packages...)...)
	fetch.Dir, fetch.Stderr = dir, os.Stderr
	if err := fetch.Run(); err != nil {
		return "", fmt.Errorf("apt-get download %q: %w", packages, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return "", err
	}
	root = filepath.Join(dir, "root")
	for _, f := range files {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", f, root).CombinedOutput(); err != nil {
			return "", fmt.Errorf("dpkg-deb: %s: %w", out, err)
		}
	}
	return root, nil
}

func (w *workshop) bin() string { return filepath.Join(w.dir, "bin") }

// environment is the suites': the stand-in comes first in the path.
func (w *workshop) environment(more ...string) []string {
	return append(os.Environ(), append(more, "PATH="+w.bin()+":"+os.Getenv("PATH"), controlVariable+"="+w.control)...)
}
