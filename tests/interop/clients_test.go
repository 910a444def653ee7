package interop_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

// The kinds of clients.
const (
	ours    = "zklock"
	driver  = "zk.Lock"
	curator = "Curator"
	kazoo   = "Kazoo"
)

var kinds = []string{ours, driver, curator, kazoo}

const (
	// bound is far longer than any step takes: it only keeps a failed test from hanging.
	bound = 2 * time.Minute
	// calm is the session timeout of clients that must keep their sessions: long enough for a busy
	// machine.
	calm = 10 * time.Second
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(puppetEnv); kind != "" {
		os.Exit(puppetMain(kind, os.Args[1:], os.Stdin, os.Stdout))
	}
	code := ensemble.Run(m)
	if compiled.dir != "" {
		if err := os.RemoveAll(compiled.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// long reports whether the long variants of the tests are to run.
func long() bool { return os.Getenv("ZKLOCK_LONG") != "" }

// needClients fails a test where the other clients are not installed.
func needClients(t *testing.T) {
	t.Helper()
	missing := func(what, pkg string, err error) {
		if err != nil {
			t.Fatalf("%s is missing: apt-get install %s: %v", what, pkg, err)
		}
	}
	for _, f := range []string{python, "/usr/lib/python3/dist-packages/kazoo/__init__.py"} {
		_, err := os.Stat(f)
		missing(f, "python3-kazoo", err)
	}
	for _, f := range jars()[:3] {
		_, err := os.Stat(f)
		missing(f, "libcurator-recipes-java", err)
	}
	for _, p := range []string{"java", "javac"} {
		_, err := exec.LookPath(p)
		missing(p, "default-jdk-headless", err)
	}
}

// python is Debian's own interpreter: another one earlier on the PATH does not find Debian's
// packages.
const python = "/usr/bin/python3"

// jars are Curator's, and those that Debian's manifests omit.
func jars() []string {
	names := strings.Fields(
		"curator-recipes curator-framework curator-client zookeeper zookeeper-jute guava failureaccess" +
			" slf4j-api slf4j-nop jackson-databind jackson-core jackson-annotations netty-all netty-codec netty-common" +
			" netty-buffer netty-handler netty-transport netty-resolver netty-transport-native-epoll netty-transport-native-unix-common")
	for i, n := range names {
		names[i] = "/usr/share/java/" + n + ".jar"
	}
	return names
}

// compiled is the Java client's classes, which all tests use; TestMain removes them.
var compiled struct {
	once sync.Once
	dir  string
	err  error
}

// classes compiles the Java client, once.
func classes() (string, error) {
	compiled.once.Do(func() {
		if compiled.dir, compiled.err = os.MkdirTemp("", "zklock-interop-"); compiled.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		out, err := exec.CommandContext(ctx, "javac", "-proc:none", "-d", compiled.dir, "-cp",
			strings.Join(jars(), ":"),
			filepath.Join("testdata", "Contender.java")).CombinedOutput()
		if err != nil {
			compiled.err = fmt.Errorf("javac: %w\n%s", err, out)
		}
	})
	return compiled.dir, compiled.err
}

// command is how a kind of client is started.
func command(t *testing.T, kind string, e *ensemble.Ensemble, timeout time.Duration) *exec.Cmd {
	t.Helper()
	args := []string{e.Connect(), fmt.Sprint(timeout.Milliseconds())}
	switch kind {
	case curator:
		dir, err := classes()
		require.NoError(t, err)
		return exec.Command("java",
			append([]string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
				"-XX:-UsePerfData",
				"-cp", strings.Join(append([]string{dir}, jars()...), ":"), "Contender"},
				args...)...)
	case kazoo:
		return exec.Command(python,
			append([]string{filepath.Join("testdata", "contender.py")}, args...)...)
	default:
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(self, args...)
		cmd.Env = append(os.Environ(), puppetEnv+"="+kind)
		return cmd
	}
}
