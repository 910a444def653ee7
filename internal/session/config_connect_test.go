package session_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
)

// What is accepted means what it means to ZooKeeper's Java client: else two programs would have two
// locks, and both hold.
func TestScenario69_ConnectStringsMeanWhatTheyMeanToTheJavaClient(t *testing.T) {
	table, err := os.ReadFile("testdata/connect.txt")
	require.NoError(t, err)
	rows := 0
	for row := range strings.Lines(string(table)) {
		if strings.HasPrefix(row, "#") {
			continue
		}
		rows++
		columns := strings.Split(strings.TrimSuffix(row, "\n"), "\t")
		require.Len(t, columns, 3, row)
		connect, java := columns[0], columns[1]
		servers, chroot, err := session.ParseConnect(connect)
		if columns[2] == "refuse" {
			require.Error(t, err, "%q", connect)
			continue
		}
		require.NoError(t, err, "%q", connect)
		javaServers, javaChroot, _ := strings.Cut(java, " /")
		if javaChroot != "" {
			javaChroot = "/" + javaChroot
		}
		require.Equal(t, javaChroot, chroot, "%q", connect)
		var want []string // each server once
		for _, s := range strings.Fields(javaServers) {
			host, port, err := net.SplitHostPort(s)
			require.NoError(t, err)
			if addr := net.JoinHostPort(host, port); !slices.Contains(want, addr) {
				want = append(want, addr)
			}
		}
		require.Equal(t, want, servers, "%q", connect)
	}
	require.Greater(t, rows, 70)
}

// Java takes the end of the first for a port, and of the second too.
func TestScenario74_AnIPv6AddressWithoutBracketsIsRefused(t *testing.T) {
	for _, connect := range []string{"2001:db8::1:2181", "::1", "zk1,2001:db8::1/app"} {
		_, _, err := session.ParseConnect(connect)
		require.ErrorIs(t, err, session.ErrConfig, connect)
		require.ErrorContains(t, err,
			"without brackets, whose end may be a port: write [address]:port", connect)
	}
}

// badConnects are bad connect strings, each with the texts that the error must contain: the value
// and the rule.
var badConnects = map[string]struct {
	is   error
	says []string
}{
	"":              {session.ErrConfig, []string{`""`, "names no server"}},
	"/":             {session.ErrConfig, []string{`"/"`, "names no server"}},
	"/app":          {session.ErrConfig, []string{`"/app"`, "names no server"}},
	",":             {session.ErrConfig, []string{`server ""`, "is empty", `","`}},
	"zk1,":          {session.ErrConfig, []string{`server ""`, "is empty", `"zk1,"`}},
	"zk1,,zk2":      {session.ErrConfig, []string{`server ""`, "is empty"}},
	":2181":         {session.ErrConfig, []string{`":2181"`, "has no host"}},
	"zk1:":          {session.ErrConfig, []string{`"zk1:"`, "port"}},
	"zk1:0":         {session.ErrConfig, []string{`"zk1:0"`, "1 to 65535"}},
	"zk1:65536":     {session.ErrConfig, []string{`"zk1:65536"`, "1 to 65535"}},
	"zk1:-1":        {session.ErrConfig, []string{`"zk1:-1"`, "1 to 65535"}},
	"zk1:http":      {session.ErrConfig, []string{`"zk1:http"`, "1 to 65535"}},
	"zk1:2181:2182": {session.ErrConfig, []string{`"zk1:2181:2182"`, "host:port"}},
	"zk1 zk2":       {session.ErrConfig, []string{`"zk1 zk2"`, "character"}},
	"zk1, ":         {session.ErrConfig, []string{"is empty"}},
	"zk\x001":       {session.ErrConfig, []string{`"zk\x001"`, "character"}},
	"user@zk1":      {session.ErrConfig, []string{`"user@zk1"`, "character"}},
	"[::1":          {session.ErrConfig, []string{`"[::1"`}},
	"::1]":          {session.ErrConfig, []string{`"::1]"`}},
	"[[::1]]":       {session.ErrConfig, []string{`"[[::1]]"`}},
	"]127.0.0.1[":   {session.ErrConfig, []string{`"]127.0.0.1["`}},
	"[]:2181":       {session.ErrConfig, []string{`"[]:2181"`, "has no host"}},
	"zk1/app,zk2/app": {session.ErrConfig,
		[]string{`"zk1/app,zk2/app"`, "the chroot stands once, after the last server"}},
	"zk1/zookeeper/x": {session.ErrConfig,
		[]string{`"zk1/zookeeper/x"`, "ZooKeeper's own"}},
	"zk1/app ":                   {session.ErrConfig, []string{`"zk1/app "`, "space"}},
	"zk1:2181;zk2:2181":          {session.ErrConfig, []string{"separated by commas"}},
	"zk1//app":                   {session.ErrPath, []string{`"//app"`, "empty component"}},
	"zk1/app/":                   {session.ErrPath, []string{`"/app/"`, "ends with a slash"}},
	"zk1/../app":                 {session.ErrPath, []string{`"/../app"`, "relative component .."}},
	"zk1/a\x00":                  {session.ErrPath, []string{`"/a\x00"`, "character"}},
	"zookeeper://zk1:2181/app":   {session.ErrConfig, []string{`"zookeeper://"`, "is no URL"}},
	"zk1/" + repeat("x", 4096):   {session.ErrPath, []string{"longer than 4096 bytes"}},
	"zk1/a/" + repeat("\xff", 3): {session.ErrPath, []string{"UTF-8"}},
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

// noDial fails the test when a connection is opened: bad input is refused before any I/O.
func noDial(t testing.TB) session.Dialer {
	return func(string, string, time.Duration) (net.Conn, error) {
		t.Error("dialled")
		return nil, net.ErrClosed
	}
}

func TestAMalformedConnectStringIsRefusedBeforeAnyDial(t *testing.T) {
	for connect, want := range badConnects {
		_, _, err := session.ParseConnect(connect)
		if !assert.Error(t, err, "%.50q is taken", connect) {
			continue
		}
		_, startErr := session.Start(connect, session.Config{Dial: noDial(t)})
		_, openErr := session.Open(context.Background(), connect, session.Config{Dial: noDial(t)})
		for _, err := range []error{err, startErr, openErr} {
			require.ErrorIs(t, err, want.is, "%.50q", connect)
			for _, part := range want.says {
				require.ErrorContains(t, err, part)
			}
			require.Less(t, len(err.Error()), 2000, "a message is for people")
		}
	}
}

func TestAConfigThatCantWorkIsRefusedBeforeAnyDial(t *testing.T) {
	for name, c := range map[string]struct {
		conf session.Config
		says string
	}{
		"negative timeout": {session.Config{Timeout: -time.Second},
			"session timeout -1s: is not between 100ms and 24h"},
		"tiny timeout": {session.Config{Timeout: time.Millisecond},
			"session timeout 1ms: is not between"},
		"endless timeout": {session.Config{Timeout: 25 * time.Hour},
			"session timeout 25h0m0s: is not between"},
		"negative tick": {session.Config{TickTime: -1}, "tick time -1ns: is not between"},
		"endless tick": {session.Config{TickTime: 25 * time.Hour},
			"tick time 25h0m0s: is not between"},
		"auth with no name": {session.Config{Auth: []session.Auth{{Credential: []byte("x")}}},
			`auth scheme "": is empty`},
		"digest, no colon": {session.Config{Auth: []session.Auth{{Scheme: "digest",
			Credential: []byte("secret")}}},
			`credential of auth scheme "digest": is not user:password`},
		"digest, no user": {session.Config{Auth: []session.Auth{{Scheme: "digest",
			Credential: []byte(":secret")}}},
			`credential of auth scheme "digest": is not user:password`},
		"second auth is bad": {session.Config{Auth: []session.Auth{{Scheme: "ip"}, {}}},
			`auth scheme "": is empty`},
	} {
		t.Run(name, func(t *testing.T) {
			c.conf.Dial = noDial(t)
			_, err := session.Open(context.Background(), "zk1", c.conf)
			require.ErrorIs(t, err, session.ErrConfig)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestAFullConfigIsTaken(t *testing.T) {
	refuse := func(string, string, time.Duration) (net.Conn, error) { return nil, net.ErrClosed }
	s, err := session.Start("zk1,zk2/a", session.Config{
		Timeout: 100 * time.Millisecond, TickTime: 24 * time.Hour,
		Auth: []session.Auth{{Scheme: "x509"}},
		TLS:  &tls.Config{MinVersion: tls.VersionTLS13}, Dial: refuse,
		Logger: slog.New(slog.DiscardHandler), OnState: func(session.Change) {},
	})
	require.NoError(t, err)
	require.Equal(t, session.Connecting, s.State())
	require.Zero(t, s.ID())
	require.Equal(t, 100*time.Millisecond, s.Timeout(),
		"what was asked for, as long as nothing was granted")
	require.NoError(t, s.Close())
	require.Equal(t, session.Over, s.State())
}

func FuzzParseConnect(f *testing.F) {
	for connect := range badConnects {
		if len(connect) < 100 {
			f.Add(connect)
		}
	}
	for _, connect := range []string{"zk1:2181,zk2:2181,zk3:2181/chroot", "[::1]:2181/a/b",
		"::1,1.2.3.4", "a,a", "[fe80::1%eth0]:1"} {
		f.Add(connect)
	}
	f.Fuzz(func(t *testing.T, connect string) {
		servers, chroot, err := session.ParseConnect(connect)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "session: bad "), err.Error())
			require.Nil(t, servers)
			return
		}
		require.NotEmpty(t, servers)
		for _, server := range servers {
			host, port, err := net.SplitHostPort(server)
			require.NoError(t, err, "what was taken can be dialled")
			require.NotEmpty(t, host)
			require.NotEmpty(t, port)
		}
		if chroot != "" {
			require.NoError(t, session.CheckPath(chroot))
		}
		again, chrootAgain, err := session.ParseConnect(strings.Join(servers, ",") + chroot)
		require.NoError(t, err, "what was taken is taken again when it is joined")
		require.Equal(t, servers, again)
		require.Equal(t, chroot, chrootAgain)
	})
}
