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

func TestEveryKillIsFollowedByAnotherWorkersTermWithAGreaterToken(t *testing.T) {
	self := filepath.Join(t.TempDir(), "leader-worker")
	build := exec.Command("go", "build", "-o", self, ".")
	build.Stderr = os.Stderr
	require.NoError(t, build.Run())

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	s := show{timeout: 2 * time.Second, kills: 2, out: &out, self: self}
	require.NoError(t, s.run(ctx), "output so far:\n%s", &out) // it checks the tokens itself
	text := out.String()
	require.Equal(t, 2, strings.Count(text, "is killed"), text)
	require.Equal(t, 2, strings.Count(text, "took over"), text)
	require.Contains(t, text, " leads, token ", "the workers write for themselves, whenever they come to it")
}
