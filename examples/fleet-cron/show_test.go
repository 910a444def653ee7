package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryPeriodsJobIsDoneOnceWhateverHappensToTheHosts(t *testing.T) {
	self := filepath.Join(t.TempDir(), "fleet-cron")
	build := exec.Command("go", "build", "-o", self, ".")
	build.Stderr = os.Stderr
	require.NoError(t, build.Run())

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	s := show{host: host{timeout: 2 * time.Second, period: 500 * time.Millisecond}, outage: 5 * time.Second, out: &out, self: self}
	if os.Getenv("ZKLOCK_LONG") != "" {
		s.outage = 20 * time.Second
	}
	require.NoError(t, s.run(ctx), "output so far:\n%s", &out) // it checks the journal itself
	text := out.String()
	for _, what := range []string{"is killed", "all servers are down", "is stopped", "is told to leave", "each job done once: true"} {
		require.Equal(t, 1, strings.Count(text, what), text)
	}
}
