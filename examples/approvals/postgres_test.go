package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
)

// postgresEnv names a PostgreSQL database to test with, as a URL.
const postgresEnv = "ZKLOCK_TEST_POSTGRES"

// postgresAttributes are the attributes of PostgreSQL's processes: it refuses to run as root, so root gives them and
// dir to the user postgres.
func postgresAttributes(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	attributes := attributes()
	if os.Getuid() != 0 {
		return attributes
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		t.Skip("PostgreSQL does not run as root, and there is no user postgres: ", err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, int(uid), int(gid)))
	if attributes == nil {
		attributes = &syscall.SysProcAttr{}
	}
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attributes
}

// postgres returns the URL of a database: the named one, or that of a server that is started for the test and ends with
// it. The test is skipped where no server is installed: SQLite runs the same statements.
func postgres(t *testing.T) string {
	t.Helper()
	if database := os.Getenv(postgresEnv); database != "" {
		return database
	}
	initdb, server := postgresProgram("initdb"), postgresProgram("postgres")
	if initdb == "" || server == "" {
		t.Skipf("no PostgreSQL server is installed; %s=postgres://… names a running one", postgresEnv)
	}
	dir, err := os.MkdirTemp("", "approvals-postgres-") // not below the test's own directory, which only its user may enter
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	attributes := postgresAttributes(t, dir)
	start := func(name string, args ...string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.SysProcAttr = dir, attributes
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		return cmd, &out
	}
	data := filepath.Join(dir, "data")
	cmd, out := start(initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	require.NoError(t, cmd.Wait(), out)
	// A socket in the directory, and no port that anybody else could have.
	cmd, out = start(server, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	exited := make(chan struct{})
	go func() { // ends with the server
		_ = cmd.Wait() // it is killed
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // at once; its children, too
		select {
		case <-exited:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Log(out)
		}
	})
	database := fmt.Sprintf("postgres:///postgres?host=%s&user=postgres", dir)
	st, err := openStore(database, "none")
	require.NoError(t, err)
	defer func() { require.NoError(t, st.close()) }()
	ensemble.Until(t, time.Minute, "PostgreSQL", func() error {
		select {
		case <-exited:
			return fmt.Errorf("it ended: %s", out)
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return st.db.PingContext(ctx)
	})
	return database
}

// postgresProgram finds one of PostgreSQL's programs: on the PATH, or where Debian puts them.
func postgresProgram(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}
