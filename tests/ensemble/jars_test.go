package ensemble_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

func TestServersAreStartedFromTheJarsInZookeeperHome(t *testing.T) {
	dir := t.TempDir()
	touch := func(names ...string) {
		for _, name := range names {
			path := filepath.Join(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, nil, 0o644))
		}
	}
	touch("release/lib/slf4j-api-1.7.jar", "release/lib/zookeeper-3.9.5.jar",
		"release/lib/zookeeper-jute-3.9.5.jar",
		"release/conf/log4j.properties", "jars/zookeeper.jar", "jars/zookeeper-jute.jar", "none/README", "other/a.jar")
	debian := []string{"slf4j-simple.jar", "netty-codec.jar", "netty-resolver.jar",
		"netty-transport-native-unix-common.jar"}
	for i, name := range debian {
		debian[i] = "/usr/share/java/" + name
	}
	for name, c := range map[string]struct {
		home string
		want []string
		fail string
	}{
		"nothing": {"", append([]string{"/usr/share/java/zookeeper.jar"}, debian...), ""},
		"an unpacked release": {"release",
			[]string{"release/conf", "release/lib/zookeeper-jute-3.9.5.jar",
				"release/lib/zookeeper-3.9.5.jar", "release/lib/slf4j-api-1.7.jar"}, ""},
		"Debian's jars of another version": {"jars",
			append([]string{"jars/zookeeper-jute.jar", "jars/zookeeper.jar"}, debian...), ""},
		"a list": {"jars/zookeeper.jar:release/lib/slf4j-api-1.7.jar:jars/zookeeper-jute.jar",
			[]string{"jars/zookeeper-jute.jar", "jars/zookeeper.jar",
				"release/lib/slf4j-api-1.7.jar"}, ""},
		"a folder without jars":        {"none", nil, "holds no jar"},
		"a folder without ZooKeeper's": {"other", nil, "names no zookeeper jar"},
		"a jar that is not there":      {"jars/zookeeper-4.jar", nil, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			rooted := func(paths []string) []string {
				var all []string
				for _, p := range paths {
					if p != "" && !filepath.IsAbs(p) {
						p = filepath.Join(dir, p)
					}
					all = append(all, p)
				}
				return all
			}
			home := c.home
			if home != "" {
				home = strings.Join(rooted(filepath.SplitList(home)), string(os.PathListSeparator))
			}
			got, err := ensemble.Classpath(home)
			if c.fail != "" {
				require.ErrorContains(t, err, c.fail)
				return
			}
			require.NoError(t, err)
			require.Equal(t, rooted(c.want), got)
		})
	}
}

func TestAServersVersionIsRead(t *testing.T) {
	e := ensemble.Shared(t, 1)
	version, err := e.Nodes[0].Version()
	require.NoError(t, err)
	require.Regexp(t, `^3\.\d+\.\d+$`, version)
}
