package zktest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

// Clients of other languages, as Debian packages them, take and release their own locks on this
// server. The tests install nothing; where the packages are missing they fail and say what to
// install.

// clientFiles requires that the files of a package are there.
func clientFiles(t *testing.T, pkg string, files ...string) {
	t.Helper()
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			t.Fatalf("%s is missing: apt-get install %s", f, pkg)
		}
	}
}

// runClient runs a program and returns the lines of its output.
func runClient(t *testing.T, name string, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s\n%s", out.String(), errs.String())
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

func TestKazooTakesAndReleasesALock(t *testing.T) {
	clientFiles(t, "python3-kazoo", "/usr/bin/python3",
		"/usr/lib/python3/dist-packages/kazoo/__init__.py")
	s := zktest.Run(t)
	assert.Equal(t, []string{
		"one holds ['one']",
		"two waits",
		"two holds ['two']",
		"left []",
		"data x",
	}, runClient(t, "/usr/bin/python3", "testdata/lock.py", s.Addr()))
	assert.Empty(t, s.Sessions())
	assert.Zero(t, s.WatchCount())
}

func TestCuratorTakesAndReleasesALock(t *testing.T) {
	const jars = "/usr/share/java/"
	var cp []string
	for _, j := range []string{"curator-recipes", "curator-framework", "curator-client",
		"zookeeper", "zookeeper-jute",
		"guava", "failureaccess", "slf4j-api", "slf4j-nop", "jackson-databind", "jackson-core",
		"jackson-annotations",
		"netty-all", "netty-codec", "netty-common", "netty-buffer", "netty-handler",
		"netty-transport", "netty-resolver",
		"netty-transport-native-epoll", "netty-transport-native-unix-common"} {
		cp = append(cp, jars+j+".jar")
	}
	java, err := exec.LookPath("java")
	if err != nil {
		java = "java"
	}
	clientFiles(t, "libcurator-recipes-java and a Java 17 JDK",
		append([]string{cp[0], cp[1], cp[2], cp[3]}, java)...)
	s := zktest.Run(t)
	assert.Equal(t, []string{
		"one holds: true",
		"two holds: false",
		"two holds: true",
		"left: []",
		"protected: 2",
	}, runClient(t, java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp",
		strings.Join(cp, string(filepath.ListSeparator)),
		"testdata/Lock.java", s.Addr()))
	assert.Empty(t, s.Sessions())
}
