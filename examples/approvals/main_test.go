package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/zktest"
)

// The test binary is its own instances, as the program is.
func TestMain(m *testing.M) {
	if text := os.Getenv(instanceEnv); text != "" {
		os.Exit(instanceMain(text, os.Stdin, os.Stdout))
	}
	os.Exit(ensemble.Run(m))
}

// small is a load for tests.
var small = []string{"-updates=240", "-keys=6", "-clients=12"}

var (
	frozen   = regexp.MustCompile(`instance-3 FROZEN with (\d+) writes decided on`)
	late     = regexp.MustCompile(`(?m)^late writes that the token refused +(\d+) `)
	result   = regexp.MustCompile(`(?m)^(updates accepted, each once|updates that the counters say|lost) +(\d+) +(\d+)$`)
	refusals = regexp.MustCompile(`doc-0\d: its update number \d+, token (\d+), is REFUSED: the row has token (\d+), of instance-[14]`)
)

// assertShow checks the output of a run with the small load.
func assertShow(t *testing.T, out string) {
	t.Helper()
	for _, text := range []string{"instance-2 KILLED", "its session is over", "instance-3 GOES ON", "The books balance.\n"} {
		assert.Contains(t, out, text)
	}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	decided := frozen.FindStringSubmatch(out)
	require.NotNil(t, decided, out)
	refused := refusals.FindAllStringSubmatch(out, -1)
	shown := number(decided[1])
	if shown > 4 {
		shown = 3 // and how many more
	}
	assert.Len(t, refused, shown)
	assert.NotEmpty(t, refused)
	for _, r := range refused {
		assert.Less(t, number(r[1]), number(r[2]), "an older token was refused for a newer one")
	}
	all := late.FindStringSubmatch(out)
	require.NotNil(t, all, out)
	assert.GreaterOrEqual(t, number(all[1]), number(decided[1]), "every late write was refused")

	table := map[string][]string{}
	for _, r := range result.FindAllStringSubmatch(out, -1) {
		table[r[1]] = r[2:]
	}
	assert.Equal(t, []string{"240", "240"}, table["updates accepted, each once"], out)
	require.Len(t, table["lost"], 2, out)
	assert.Equal(t, "240", table["updates that the counters say"][0])
	assert.Equal(t, "0", table["lost"][0])
	assert.Positive(t, number(table["lost"][1]), "without the lock updates are lost")
}

// runsClean runs the program and demands that it leaves no process behind.
func runsClean(t *testing.T, args ...string) string {
	t.Helper()
	before := children(t)
	var out, errs bytes.Buffer
	code := run(t.Context(), append(args, small...), &out, &errs)
	require.Equal(t, exitBalanced, code, "%s%s", &out, &errs)
	assert.Empty(t, errs.String())
	assert.Equal(t, before, children(t), "processes are left")
	return out.String()
}

// children returns the process ids of this process's children, where the system tells.
func children(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	all := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for _, pid := range strings.Fields(string(text)) {
			all[pid] = true
		}
	}
	return all
}

func TestTheBooksBalanceAlthoughOneInstanceIsKilledAndOneIsFrozen(t *testing.T) {
	out := runsClean(t)
	assert.Contains(t, out, "a ZooKeeper server inside this program")
	assertShow(t, out)
	dir := regexp.MustCompile(`SQLite in (\S+) `).FindStringSubmatch(out)
	require.NotNil(t, dir, out)
	assert.NoDirExists(t, dir[1])
}

func TestTheBooksBalanceInPostgreSQL(t *testing.T) {
	database := postgres(t)
	out := runsClean(t, "-db", database)
	assert.Contains(t, out, "Settings: PostgreSQL")
	assertShow(t, out)
	st, err := openStore(database, "none")
	require.NoError(t, err)
	defer func() { require.NoError(t, st.close()) }()
	var tables int
	require.NoError(t, st.db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_tables WHERE tablename LIKE 'approval%'`).Scan(&tables))
	assert.Zero(t, tables)
}

// trigger is a writer that calls do once when it has been given text.
type trigger struct {
	io.Writer
	text string
	once sync.Once
	do   func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.once.Do(w.do)
	}
	return w.Writer.Write(p)
}

func TestCtrlCEndsTheProgramAndLeavesNothingBehind(t *testing.T) {
	for name, moment := range map[string]string{
		"before the clients begin":    "behind a proxy",
		"when one was killed":         "KILLED",
		"while one is frozen":         "FROZEN",
		"in the run without the lock": "== The same without",
	} {
		t.Run(name, func(t *testing.T) {
			srv := zktest.Run(t, zktest.WithTick(tick))
			before := children(t)
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var out, errs bytes.Buffer
			w := &trigger{Writer: &out, text: moment, do: interrupt}
			code := run(ctx, append([]string{"-zk", srv.Addr()}, small...), w, &errs)
			assert.Equal(t, exitInterrupted, code, "%s%s", &out, &errs)
			assert.Equal(t, "approvals: interrupted\n", errs.String())
			assert.Equal(t, before, children(t), "processes are left")
			assert.Equal(t, []string{"zookeeper"}, srv.Children("/"))
			left, err := os.ReadDir(temporary)
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

func TestBadCommandLinesAreRefusedWithTheirValue(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"-updates=39", "-updates 39: want 40 to 100000"},
		{"-keys=0", "-keys 0: want 1 to 100"},
		{"-clients=401", "-clients 401"},
		{"-instances=2", "-instances 2: want 3 to 20"},
		{"-pause=-1s", "-pause -1s"},
		{"-db=approvals.db", `-db "approvals.db": want postgres://`},
		{"localhost:2181", `"localhost:2181": takes flags only`},
		{"-nonsense", "-nonsense"},
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, exitUsage, run(t.Context(), []string{c.args}, &out, &errs), c.args)
		assert.Contains(t, errs.String(), c.says)
		assert.Empty(t, out.String())
	}
	var out, errs bytes.Buffer
	assert.Equal(t, exitBalanced, run(t.Context(), []string{"-h"}, &out, &errs))
	assert.Contains(t, errs.String(), "-instances")
}

// An instance that can't start is named, with its reason, and nothing is left.
func TestAMissingDatabaseEndsTheRunAndTheErrorNamesIt(t *testing.T) {
	before := children(t)
	began := time.Now()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"-db", fmt.Sprintf("postgres:///none?host=%s", t.TempDir())}, &out, &errs)
	assert.Equal(t, exitFailed, code, "%s%s", &out, &errs)
	assert.Contains(t, errs.String(), "database: create tables")
	assert.Equal(t, before, children(t))
	assert.Less(t, time.Since(began), time.Minute)
}
