package main

import (
	"bytes"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers "mysql"
	"github.com/stretchr/testify/require"
)

// startMariaDB starts a MariaDB server on an empty directory, which ends with the test, and returns
// the address of its socket.
func startMariaDB(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "approvals.")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	var as []string
	if os.Getuid() == 0 { // MariaDB refuses to run as root
		as = []string{"setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups"}
		out, err := exec.Command("chown", "mysql", dir).CombinedOutput()
		require.NoError(t, err, "is MariaDB installed (apt-get install mariadb-server)? %s", out)
	}
	run := func(args ...string) *exec.Cmd {
		args = append(as, args...)
		cmd := exec.Command("env",
			append([]string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	data, socket := "--datadir="+filepath.Join(dir, "data"), filepath.Join(dir, "s")
	out, err := run("mariadb-install-db", "--no-defaults", data,
		"--auth-root-authentication-method=normal").CombinedOutput()
	require.NoError(t, err, "is MariaDB installed (apt-get install mariadb-server)? %s", out)
	var log bytes.Buffer
	server := run("mariadbd", "--no-defaults", data, "--socket="+socket, "--skip-networking",
		"--pid-file="+filepath.Join(dir, "pid"))
	server.Stderr = &log
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have ended
		_ = server.Wait()
		if t.Failed() {
			t.Logf("MariaDB: %s", &log)
		}
	})
	addr := "root@unix(" + socket + ")/test"
	db, err := sql.Open("mysql", addr)
	require.NoError(t, err)
	defer db.Close()
	require.Eventually(t, func() bool {
		return db.PingContext(t.Context()) == nil
	}, time.Minute, 10*time.Millisecond)
	return addr
}

var placeholder = regexp.MustCompile(`\$\d`)

// inMySQL returns a statement of the pages as MySQL takes it, and its arguments in the order of the
// placeholders.
func inMySQL(statement string, token int64) (string, []any) {
	args := arguments(statement, token)
	var each []any
	for _, dollar := range placeholder.FindAllString(statement, -1) {
		each = append(each, args[dollar[1]-'1'])
	}
	statement, _, _ = strings.Cut(statement, " RETURNING ") // a SELECT follows, in one transaction
	return placeholder.ReplaceAllString(statement, "?"), each
}

func TestTheStatementsOfThePagesWriteForANewerHolderAndForNoOlderOneInMySQL(t *testing.T) {
	addr := startMariaDB(t)
	db, err := sql.Open("mysql", addr+"?clientFoundRows=true")
	require.NoError(t, err)
	defer db.Close()
	for _, statement := range []string{
		`CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT)`,
		`INSERT INTO orders VALUES (4710, 'new')`,
		`CREATE TABLE reports (id BIGINT PRIMARY KEY, body TEXT)`,
		`INSERT INTO reports VALUES (6, ''), (7, '')`,
		`CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT)`,
		`INSERT INTO accounts VALUES (16, 0), (17, 0)`,
	} {
		change(t, db, statement)
	}
	page := statements(t, "(?s)```sql\n(.*?)```")
	require.Len(t, page, 1)
	alter, rest, _ := strings.Cut(page[0], ";")
	change(t, db, alter)
	insert, _, _ := strings.Cut(strings.Replace(rest, "INSERT INTO", "INSERT IGNORE INTO", 1),
		" ON CONFLICT")
	require.EqualValues(t, 1, change(t, db, insert))
	require.Zero(t, change(t, db, insert), "the row is there, and stays")
	change(t, db, strings.Replace(alter, "orders", "reports", 1))
	change(t, db, strings.Replace(alter, "orders", "accounts", 1))
	for _, table := range []string{"orders", "reports", "accounts"} {
		require.EqualValues(t, 2, change(t, db, `UPDATE `+table+` SET token = 5 WHERE token <= 5`),
			"the rows of before, too")
	}
	writes := statements(t, updating)
	require.Len(t, writes, 8)
	for _, page := range writes {
		for _, c := range []struct{ token, rows int64 }{{4, 0}, {6, 1}, {6, 1}, {5, 0}} {
			// the second one by 6 writes the same values
			statement, args := inMySQL(page, c.token)
			require.Equal(t, c.rows, change(t, db, statement, args...), "%s, token %d", statement,
				c.token)
		}
	}

	plain, err := sql.Open("mysql", addr)
	require.NoError(t, err)
	defer plain.Close()
	statement, args := inMySQL(writes[0], 7)
	require.EqualValues(t, 1, change(t, plain, statement, args...))
	require.Zero(t, change(t, plain, statement, args...),
		"without clientFoundRows a write of the same values looks refused")
}
