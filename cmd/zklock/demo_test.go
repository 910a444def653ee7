//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The demo succeeds, and its znodes can't be removed, since another client has put a znode into their directory.
func TestADemoThatLeavesZnodesBehindReportsThem(t *testing.T) {
	t.Parallel()
	srv := server(t)
	p := launch(t, srv.Addr(), "demo", "--zk", srv.Addr(), "--tick", tick.String())
	var dir string
	until(t, "the show's directory", func() bool {
		for _, name := range srv.Children("/") {
			if strings.HasPrefix(name, "zklock-demo-") {
				dir = "/" + name
			}
		}
		return dir != ""
	})
	require.NoError(t, srv.Create(dir+"/kept", nil))
	p.exits(exitFailed)
	require.Contains(t, p.out.String(), "never more than 1 at once")
	require.Contains(t, p.err.String(), "delete "+dir)
}
