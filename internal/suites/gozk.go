package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const goModule = "github.com/go-zookeeper/zk"

// goZooKeeper runs the tests of the driver's module, of the version that this project uses.
func goZooKeeper(ctx context.Context, w *workshop) (report, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-json", goModule).Output()
	if err != nil {
		return report{}, fmt.Errorf("go list: %w", err)
	}
	var module struct{ Version string }
	if err := json.Unmarshal(out, &module); err != nil {
		return report{}, err
	}
	out, err = exec.CommandContext(ctx, "go", "mod", "download", "-json", goModule+"@"+module.Version).Output()
	if err != nil {
		return report{}, fmt.Errorf("go mod download: %w", err)
	}
	var download struct{ Dir string }
	if err := json.Unmarshal(out, &download); err != nil {
		return report{}, err
	}
	dir := filepath.Join(w.dir, "go-zookeeper")
	if err := os.CopyFS(dir, os.DirFS(download.Dir)); err != nil {
		return report{}, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", ".")
	cmd.Dir = dir
	cmd.Env = w.environment("ZOOKEEPER_BIN_PATH="+w.bin(), "GOWORK=off", "GOFLAGS=-mod=mod")
	cmd.Stderr = w.output
	out, err = cmd.Output() // an error where a test has failed
	r := report{version: module.Version}
	if parseErr := r.countGo(out, w); parseErr != nil {
		return r, errors.Join(err, parseErr)
	}
	if r.passed == 0 {
		return r, fmt.Errorf("no test has passed: %w", err)
	}
	return r, nil
}

// countGo counts the results of go test -json, those of whole tests alone.
func (r *report) countGo(out []byte, w *workshop) error {
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("go test -json: %q: %w", lines.Text(), err)
		}
		if _, err := fmt.Fprint(w.output, e.Output); err != nil {
			return err
		}
		switch {
		case e.Test == "" || strings.Contains(e.Test, "/"):
		case e.Action == "pass":
			r.passed++
		case e.Action == "skip":
			r.skipped++
		case e.Action == "fail":
			r.failed = append(r.failed, e.Test)
		}
	}
	return lines.Err()
}
