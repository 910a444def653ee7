//go:build linux

package main

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
)

// A service with Type=notify: systemd is notified of the wait, that the command runs, and of the end; the command does
// not notify for zklock.
func TestSystemdIsNotifiedOfTheWaitAndWhenTheCommandRuns(t *testing.T) {
	s := server(t)
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer systemd.Close()
	require.NoError(t, systemd.SetReadDeadline(time.Now().Add(locktest.Bound)))
	var heard []string
	hears := func(want string) { // reads on until it comes
		t.Helper()
		buf := make([]byte, 4096)
		for {
			n, err := systemd.Read(buf)
			require.NoError(t, err, "%s; heard %q", want, heard)
			heard = append(heard, string(buf[:n]))
			if strings.Contains(string(buf[:n]), want) {
				return
			}
		}
	}
	d := newDiary(t)
	holder := launch(t, s.Addr(), "run", "--owner", "first", "/l", "--", testCommand, "diary", string(d), "live")
	d.alive(t, "child")

	t.Setenv(envNotify, socket)
	p := launch(t, s.Addr(), "run", "--notify", "/l", "--", "sh", "-c", `echo "<$NOTIFY_SOCKET>"; exec `+testCommand+" diary "+string(d)+" live")
	hears("STATUS=waiting for /l")
	hears("EXTEND_TIMEOUT_USEC=")
	hears("STATUS=waiting 2nd in line behind first (")
	for _, m := range heard {
		require.NotContains(t, m, "READY")
	}
	require.NoError(t, holder.Process.Signal(syscall.SIGTERM))
	hears("READY=1\nSTATUS=holds /l/_c_")
	until(t, "the command has said what it finds", func() bool { return strings.Contains(p.out.String(), "<>") })
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	hears("STOPPING=1")
	p.exits(128 + int(syscall.SIGTERM))

	t.Setenv(envNotify, "")
	code := launch(t, s.Addr(), "run", "--notify", "/l", "--", "true")
	code.exits(exitUsage)
	require.Contains(t, code.err.String(), "NOTIFY_SOCKET is not set")
}
