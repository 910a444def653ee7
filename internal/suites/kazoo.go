package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pytestPackages are what Kazoo's tests need besides Kazoo, by their Debian names.
var pytestPackages = []string{"python3-pytest", "python3-pluggy", "python3-iniconfig", "python3-attr", "python3-packaging",
	"python3-mock", "python3-pbr", "python3-objgraph", "python3-pytest-timeout"}

// kazooLeaves excludes tests of Kazoo's own build, and tests that need a Kerberos server or another event loop.
var kazooLeaves = []string{"test_build.py", "test_eventlet_handler.py", "test_gevent_handler.py", "test_sasl.py"}

// kazoo runs Kazoo's tests.
func kazoo(ctx context.Context, w *workshop) (report, error) {
	tests := filepath.Join(w.kazoo, "kazoo", "tests")
	if _, err := os.Stat(tests); err != nil {
		return report{}, fmt.Errorf("no tests of Kazoo's (package python3-kazoo has them; -kazoo names another place): %w", err)
	}
	libraries, err := w.pytest(ctx)
	if err != nil {
		return report{}, err
	}
	path := "PYTHONPATH=" + w.kazoo + ":" + libraries
	out, err := w.python(ctx, path, "-c", "import kazoo; print(kazoo.__version__)").Output()
	if err != nil {
		return report{}, fmt.Errorf("import kazoo: %w", err)
	}
	results := filepath.Join(w.dir, "kazoo.xml")
	args := []string{"-m", "pytest", "-p", "no:cacheprovider", "--timeout", "60", "--junitxml", results, "-v", tests}
	for _, leave := range kazooLeaves {
		args = append(args, "--ignore", filepath.Join(tests, leave))
	}
	cmd := w.python(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = w.output, w.output
	failed := cmd.Run() // an error where a test has failed
	r := report{version: strings.TrimSpace(string(out))}
	if err := r.countJUnit(results); err != nil {
		return r, errors.Join(failed, err)
	}
	return r, nil
}

// python runs Python in the workshop, with the stand-in for java.
func (w *workshop) python(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "python3", args...)
	cmd.Dir = w.dir
	cmd.Env = w.environment(path, "ZOOKEEPER_VERSION=3.8.0", "ZOOKEEPER_CLASSPATH=none", "PYTHONDONTWRITEBYTECODE=1",
		"ZOOKEEPER_PORT_OFFSET=21600")
	return cmd
}

// pytest returns a directory with pytest, empty if it is installed.
func (w *workshop) pytest(ctx context.Context) (string, error) {
	if w.python(ctx, "PYTHONPATH=", "-c", "import pytest, mock, objgraph, pytest_timeout").Run() == nil {
		return "", nil
	}
	root, err := w.debian(ctx, pytestPackages)
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "usr/lib/python3/dist-packages"), nil
}

// countJUnit counts the results of a file in JUnit's form.
func (r *report) countJUnit(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var all struct {
		Suites []struct {
			Cases []struct {
				Class   string    `xml:"classname,attr"`
				Name    string    `xml:"name,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &all); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, s := range all.Suites {
		for _, c := range s.Cases {
			switch {
			case c.Failure != nil || c.Error != nil:
				r.failed = append(r.failed, c.Class[strings.LastIndexByte(c.Class, '.')+1:]+"."+c.Name)
			case c.Skipped != nil:
				r.skipped++
			default:
				r.passed++
			}
		}
	}
	return nil
}
