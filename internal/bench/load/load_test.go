package load_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/bench/load"
	"github.com/zklock/locker/internal/bench/peers"
	"github.com/zklock/locker/zktest"
)

func serve(t *testing.T, peer string, commands ...string) []string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, load.Serve(strings.NewReader(strings.Join(commands, "\n")), &out, peers.All[peer]))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func words(lines []string) (first []string) {
	for _, l := range lines {
		w, _, _ := strings.Cut(l, " ")
		first = append(first, w)
	}
	return first
}

func TestTheCyclesOfEveryWorkerAreReported(t *testing.T) {
	server := zktest.Run(t)
	for _, peer := range []string{"raw", "raw-session", "zklock", "local", "zk.Lock"} {
		t.Run(peer, func(t *testing.T) {
			got := serve(t, peer, "run "+server.Addr()+" 0 10000 /"+peer+" 2 3 2 0 1")
			require.Equal(t, []string{"opened", "start", "end"}, words(got)[:3])
			require.Equal(t, "done", got[len(got)-1])
			ops := got[3 : len(got)-1]
			require.GreaterOrEqual(t, len(ops), 4, "as many cycles as locks, twice")
			for _, o := range ops {
				require.Len(t, strings.Split(o, " "), 6)
			}
		})
	}
}

func TestWaitersEnterAfterTheHolder(t *testing.T) {
	server := zktest.Run(t)
	in, out := io.Pipe()
	answers, said := io.Pipe()
	done := make(chan error)
	go func() { done <- load.Serve(in, said, peers.All["zklock"]) }()
	got := func() string {
		var line []byte
		for b := make([]byte, 1); ; {
			_, err := answers.Read(b)
			require.NoError(t, err)
			if b[0] == '\n' {
				return string(line)
			}
			line = append(line, b[0])
		}
	}
	say := func(s string) {
		_, err := io.WriteString(out, s+"\n")
		require.NoError(t, err)
	}
	say("park " + server.Addr() + " 0 10000 /line 2 2")
	require.Equal(t, "opened", got())
	require.Regexp(t, `^held \d+$`, got())
	say("measure")
	require.Regexp(t, `^memory -?\d+$`, got())
	say("drain")
	for range 4 {
		require.Regexp(t, `^op 0 \d+ \d+ \d+ \d+$`, got())
	}
	require.Equal(t, "done", got())
	require.NoError(t, out.Close())
	require.NoError(t, <-done)
	require.Empty(t, server.Sessions())
}

func TestBadCommandsAreAnswered(t *testing.T) {
	for command, want := range map[string]string{
		"dance":                              `unknown command "dance"`,
		"run":                                "1 words instead of 10",
		"run s 0 10 /r 1 1 x 0 1":            `word 7, "x", is not a number in range`,
		"run s 0 10 /r 0 1 1 0 1":            `word 5, "0", is not a number in range`,
		"run s:1:1 0 10000 /r 1 1 1 0 1":     "client 0",
		"drain":                              "no lock is held",
		"park 127.0.0.1:1 0 10000 bad 1 1 1": "8 words instead of 7",
	} {
		got := serve(t, "zklock", command)
		require.Len(t, got, 1)
		require.Contains(t, got[0], "error ")
		require.Contains(t, got[0], want)
	}
}
