//go:build linux

package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

// The scripts in testdata/script run zklock as a user does, each on a server of its own. In
// addition to testscript's own commands they have
//
//	queued N PATH       wait until the line of PATH has N contenders
//	code N COMMAND…     run it, and expect this exit code; stdout and stderr work as after exec
//	token VAR PATH      set VAR to the first one's token
//	znode PATH TEXT     create a foreign znode; TEXT is read as a Go string without quotes
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			s, err := zktest.Start(zktest.WithTick(tick), longSessions)
			if err != nil {
				return err
			}
			env.Defer(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			env.Values[serverKey{}] = s
			env.Setenv(envZK, s.Addr())
			env.Setenv(envTimeout, calm)
			env.Setenv(variable("connect-timeout"), calm)
			env.Setenv(envRoot, "/")
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"queued": func(ts *testscript.TestScript, _ bool, args []string) {
				n, err := strconv.Atoi(args[0])
				ts.Check(err)
				s := ts.Value(serverKey{}).(*zktest.Server)
				ctx, cancel := context.WithTimeout(context.Background(), locktest.Bound)
				defer cancel()
				if err := s.Await(ctx, func() bool { return inLine(s, args[1]) == n }); err != nil {
					ts.Fatalf("%d in line of %s, want %d: %v", inLine(s, args[1]), args[1], n, err)
				}
			},
			"code": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				got := "0"
				if err != nil {
					got = strings.TrimPrefix(err.Error(), "exit status ")
				}
				if got != args[0] {
					ts.Fatalf("%q: exit code %s, want %s", args[1:], got, args[0])
				}
			},
			"token": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(args[0], tokenOf(t, ts.Value(serverKey{}).(*zktest.Server), args[1]))
			},
			"znode": func(ts *testscript.TestScript, _ bool, args []string) {
				text, err := strconv.Unquote(`"` + args[1] + `"`)
				ts.Check(err)
				path, err := strconv.Unquote(`"` + args[0] + `"`)
				ts.Check(err)
				ts.Check(ts.Value(serverKey{}).(*zktest.Server).Create(path, []byte(text)))
			},
		},
	})
}

// serverKey finds a script's server.
type serverKey struct{}
