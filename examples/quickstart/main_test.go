package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestMain(m *testing.M) { os.Exit(ensemble.Run(m)) }

var (
	increment = regexp.MustCompile(
		`(worker-\d+) +counter (\d+) → (\d+) under the lock, token (\d+)`)
	waiting = regexp.MustCompile(
		`(worker-\d+) +waits: number [234] in line, (worker-\d+|a client that is just leaving) has the lock`)
	crash    = regexp.MustCompile(`(worker-\d+) +CRASHES with the lock in hand, token (\d+)`)
	loss     = regexp.MustCompile(`(worker-\d+) +is told by its own clock that the lock is lost: `)
	recovery = regexp.MustCompile(`(worker-\d+) +RECOVERED: has the lock (\S+) after the crash`)
)

// assertShow checks the output of a run with 3 workers and 2 increments each.
func assertShow(t *testing.T, out string) {
	t.Helper()
	locked, unlocked, found := strings.Cut(out, "== The same without the lock")
	require.True(t, found, out)

	made := increment.FindAllStringSubmatch(locked, -1)
	require.Len(t, made, 6, "every increment is made once: %s", out)
	before := int64(0)
	for i, m := range made {
		assert.Equal(t, []string{strconv.Itoa(i), strconv.Itoa(i + 1)}, m[2:4],
			"nobody else wrote between a read and its write")
		token, err := strconv.ParseInt(m[4], 10, 64)
		require.NoError(t, err)
		assert.Greater(t, token, before, "tokens grow from holder to holder")
		before = token
	}
	assert.Regexp(t, waiting, locked)

	crashed := crash.FindStringSubmatch(locked)
	require.NotNil(t, crashed, out)
	lost := loss.FindStringSubmatchIndex(locked)
	require.NotNil(t, lost, out)
	assert.Equal(t, crashed[1], locked[lost[2]:lost[3]],
		"it is the crashed worker that learns of its loss")
	resumed := recovery.FindStringSubmatchIndex(locked)
	require.NotNil(t, resumed, out)
	assert.NotEqual(t, crashed[1], locked[resumed[2]:resumed[3]])
	assert.Less(t, lost[0], resumed[0], "the loss is known before anybody else has the lock")
	for _, m := range made {
		assert.NotEqual(t, crashed[2], m[4],
			"the crashed worker wrote nothing under the lock that it lost")
	}

	assert.Contains(t, unlocked, "counter 0 → 1\n")
	assert.Regexp(t, `with the lock +6 increments, counter +6: exact`, unlocked)
	assert.Regexp(t, `without the lock +6 increments, counter +[1-5]: [1-5] lost`, unlocked)
}

func TestCountsExactlyWithTheLockAndLosesIncrementsWithoutIt(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"-workers=3", "-increments=2", "-pause=20ms"}, &out, &errs)
	require.Equal(t, exitExact, code, "%s%s", &out, &errs)
	assert.Empty(t, errs.String())
	assert.Contains(t, out.String(), "using a ZooKeeper server inside this program")
	assertShow(t, out.String())
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

func TestCtrlCEndsTheProgramAtOnceAndLeavesNothingBehind(t *testing.T) {
	for name, moment := range map[string]string{
		"while they wait":          "waits: number 3",
		"after the crash":          "CRASHES",
		"in the run with no locks": "== The same without",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has a server of its own
			srv := zktest.Run(t, zktest.WithTick(tick))
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var interrupted time.Time
			var out, errs bytes.Buffer
			w := &trigger{Writer: &out, text: moment, do: func() {
				interrupted = time.Now()
				interrupt()
			}}
			code := run(ctx,
				[]string{"-zk", srv.Addr(), "-workers=3", "-increments=2", "-pause=20ms"}, w, &errs)
			assert.Equal(t, exitInterrupted, code, "%s%s", &out, &errs)
			assert.Equal(t, "quickstart: interrupted\n", errs.String())
			assert.Less(t, time.Since(interrupted), 10*patience, "it waits for nobody")
			assert.Equal(t, []string{"zookeeper"}, srv.Children("/"))
		})
	}
}

func TestBadCommandLinesAreRefusedWithTheirValue(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"-workers=1", "-workers 1: want 2 to 100"},
		{"-workers=101", "-workers 101"},
		{"-increments=0", "-increments 0"},
		{"-pause=-1s", "-pause -1s"},
		{"localhost:2181", `"localhost:2181": takes flags only`},
		{"-nonsense", "-nonsense"},
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, exitUsage, run(t.Context(), []string{c.args}, &out, &errs), c.args)
		assert.Contains(t, errs.String(), c.says)
		assert.Empty(t, out.String())
	}
	var out, errs bytes.Buffer
	assert.Equal(t, exitFailed, run(t.Context(), []string{"-zk=:2181"}, &out, &errs))
	assert.Contains(t, errs.String(), `":2181"`)
}

func TestHelpIsNoFailure(t *testing.T) {
	var out, errs bytes.Buffer
	assert.Equal(t, exitExact, run(t.Context(), []string{"-h"}, &out, &errs))
	assert.Contains(t, errs.String(), "-workers")
}

// A failure of one worker ends the run of all: here, a lock that nobody may use.
func TestAFailureEndsTheRunAndIsReported(t *testing.T) {
	srv := zktest.Run(t, zktest.WithTick(tick))
	srv.Inject(fault.Answer(fault.CodeNoAuth).Op(fault.OpCreate).Path("/*/lock/*"))
	var out, errs bytes.Buffer
	assert.Equal(t, exitFailed, run(t.Context(), []string{"-zk", srv.Addr()}, &out, &errs))
	assert.Contains(t, errs.String(), "worker-")
	assert.Contains(t, errs.String(), "refused by an access list")
}
