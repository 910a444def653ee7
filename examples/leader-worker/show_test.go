package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryPieceOfWorkIsDoneOnceWhateverHappensToTheLeader(t *testing.T) {
	self := build(t)
	outage := 5 * time.Second
	if os.Getenv("ZKLOCK_LONG") != "" {
		outage = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out printed
	s := show{worker: worker{timeout: 2 * time.Second}, outage: outage, out: &out, self: self}
	require.NoError(t, s.run(ctx), "%s", &out) // it checks journal and tokens itself
	for _, phrase := range []string{"is told to leave", " leaves\n", "is killed",
		"all servers are down", "is stopped", "each done once: true"} {
		require.Equal(t, 1, strings.Count(out.String(), phrase), "%q\n%s", phrase, &out)
	}
}

// build compiles the program.
func build(t *testing.T) (self string) {
	self = filepath.Join(t.TempDir(), "leader-worker")
	built, err := exec.Command("go", "build", "-buildvcs=false", "-o", self, ".").CombinedOutput()
	require.NoError(t, err, "%s", built)
	return self
}

// printed takes what the show and its workers print at the same time.
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
