package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// serve runs a PostgreSQL server until its standard input ends, as it does with this process,
// however that ends. The server listens on a socket in a directory of its own, and on no port. Its
// programs are in $1.
const serve = `
set -eu
trap '' INT TERM
export PATH="$1:$PATH"
cd /
dir=$(mktemp -d /tmp/approvals.XXXXXX)
trap 'pg_ctl -D "$dir/data" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT
initdb -D "$dir/data" -U postgres -A trust -E UTF8 --no-locale --no-sync >&2
pg_ctl -D "$dir/data" -w -l "$dir/log" -o "-k $dir -c listen_addresses= -c fsync=off" start >&2 || { cat "$dir/log" >&2; exit 1; }
echo "$dir"
read -r line || true
`

// startPostgres starts a PostgreSQL server on an empty directory and returns its URL. stop ends it
// and removes the directory.
func startPostgres() (url string, stop func() error, err error) {
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // where Debian has it
		if len(found) == 0 {
			return "", nil,
				errors.New(
					"no PostgreSQL is installed (apt-get install postgresql), and -db names none")
		}
		initdb = found[len(found)-1]
	}
	args := []string{"sh", "-c", serve, "sh", filepath.Dir(initdb)}
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"},
			args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	var log bytes.Buffer
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("PostgreSQL: %w", err)
	}
	stop = func() error { return errors.Join(stdin.Close(), cmd.Wait()) }
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		return "", nil, fmt.Errorf("PostgreSQL: %w\n%s", errors.Join(lines.Err(), stop()), &log)
	}
	return "postgres:///postgres?user=postgres&host=" + lines.Text(), stop, nil
}
