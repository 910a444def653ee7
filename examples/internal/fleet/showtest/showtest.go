// Package showtest runs the show of an example in its test.
package showtest

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Outage is how long all servers are down in a test.
func Outage() time.Duration {
	if Long() {
		return 20 * time.Second
	}
	return 5 * time.Second
}

// Long reports whether the variants that take minutes are to run.
func Long() bool { return os.Getenv("ZKLOCK_LONG") != "" }

// Run builds the program of the test's package, runs show with it, and demands that each of these phrases is printed once.
// It returns what was printed.
func Run(t *testing.T, limit time.Duration, show func(ctx context.Context, self string, out io.Writer) error, once ...string) string {
	t.Helper()
	self := filepath.Join(t.TempDir(), "example")
	build := exec.Command("go", "build", raceFlag, "-o", self, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out printed
	if err := show(ctx, self, &out); err != nil {
		t.Fatalf("%v\noutput so far:\n%s", err, out.String())
	}
	for _, phrase := range once {
		if n := strings.Count(out.String(), phrase); n != 1 {
			t.Fatalf("%q was printed %d times:\n%s", phrase, n, out.String())
		}
	}
	return out.String()
}

// printed takes what the show and its hosts print at the same time.
type printed struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

// String returns what has been printed so far.
func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}
