package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
)

const readme = "../../README.md"

// goBlocks returns the README's Go code, block by block.
func goBlocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	var blocks []string
	for _, part := range strings.Split(string(text), "\n```go\n")[1:] {
		code, _, ended := strings.Cut(part, "\n```\n")
		require.True(t, ended)
		blocks = append(blocks, code+"\n")
	}
	return blocks
}

// block returns the only Go block that begins with prefix.
func block(t *testing.T, prefix string) string {
	t.Helper()
	var found []string
	for _, b := range goBlocks(t) {
		if strings.HasPrefix(b, prefix) {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1, "blocks that begin with %q", prefix)
	return found[0]
}

// goTool runs the go command on one file with the given content, which may import this module, and returns its output.
func goTool(t *testing.T, name, content string, args ...string) (stdout string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
	cmd := exec.CommandContext(t.Context(), "go", append(args, file)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "go %s on\n%s\n%s%s", strings.Join(args, " "), content, &out, &errs)
	return out.String()
}

func TestReadmesProgramRuns(t *testing.T) {
	program := block(t, "package main\n")
	assert.Equal(t, "one at a time in the whole fleet\n", goTool(t, "main.go", program, "run", "-buildvcs=false"))
}

// As its comment says, a connect string makes the same program one for an ensemble.
func TestReadmesProgramRunsOnARealEnsemble(t *testing.T) {
	e := ensemble.Shared(t, 1)
	program := block(t, "package main\n")
	require.Equal(t, 1, strings.Count(program, "server.Addr()"))
	program = strings.Replace(program, "server.Addr()", `"`+e.Connect()+`"`, 1)
	assert.Equal(t, "one at a time in the whole fleet\n", goTool(t, "main.go", program, "run", "-buildvcs=false"))
}

func TestReadmesTestPasses(t *testing.T) {
	out := goTool(t, "report_test.go", block(t, "package report_test\n"), "test", "-count=1", "-v")
	assert.Contains(t, out, "--- PASS: TestAnExpiredSessionEndsTheHold")
}

// The remaining blocks are the insides of functions; each is put into one and vetted, not run: they want a database, and
// handlers.
func TestReadmesFragmentsCompile(t *testing.T) {
	require.Len(t, goBlocks(t), 4, "a new block needs a test")
	goTool(t, "fragment.go", `package fragment

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/zklock"
)

func Fragment(ctx context.Context, client *zklock.Client, db *sql.DB, report []byte) error {
`+block(t, "hold, err := ")+`
	return err
}
`, "vet")
	goTool(t, "fragment.go", `package fragment

import (
	"net/http"
	"time"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
)

func Fragment(client *zklock.Client, mux *http.ServeMux, approve http.Handler) {
`+block(t, "lock := ")+`
}
`, "vet")
}
