package ensemble

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// homeEnv selects the servers' software: the folder of an unpacked release, a folder of jars, or a
// list of jars as in a class path. Unset: Debian's package. Jars without a logger count as Debian's
// own of another version, and run with the other jars of the installed package.
const homeEnv = "ZOOKEEPER_HOME"

const (
	jarDir  = "/usr/share/java"
	install = "apt-get install libzookeeper-java default-jre-headless"
)

// debian are the jars that a Debian server needs besides zookeeper.jar, whose manifest names the
// rest, by their absolute paths: a logger that prints to standard error, and the parts of netty
// that the manifest omits.
var debian = []string{
	"slf4j-simple.jar", "netty-codec.jar", "netty-resolver.jar",
	"netty-transport-native-unix-common.jar",
}

// classpath returns the paths for java. The error names what is missing, and the remedy.
func classpath(home string) ([]string, error) {
	var paths []string
	if home == "" {
		paths = []string{filepath.Join(jarDir, "zookeeper.jar")}
	} else {
		var err error
		if paths, err = software(home); err != nil {
			return nil, fmt.Errorf("ensemble: %s=%q: %w", homeEnv, home, err)
		}
	}
	if !slices.ContainsFunc(paths, isLogger) {
		for _, jar := range debian {
			paths = append(paths, filepath.Join(jarDir, jar))
		}
	}
	var errs []error
	if _, err := exec.LookPath("java"); err != nil {
		errs = append(errs, err)
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil,
			fmt.Errorf("ensemble: ZooKeeper's servers are not installed; run: %s (or name an unpacked release in %s, or a running ensemble in %s): %w",
				install, homeEnv, serversEnv, err)
	}
	return paths, nil
}

// software returns the jars that home names, and the folder with a release's logger configuration.
func software(home string) ([]string, error) {
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		return ordered(filepath.SplitList(home))
	}
	for _, dir := range []string{filepath.Join(home, "lib"), home} {
		jars, err := filepath.Glob(filepath.Join(dir, "*.jar"))
		if err != nil {
			return nil, err
		}
		if len(jars) == 0 {
			continue
		}
		if jars, err = ordered(jars); err != nil {
			return nil, err
		}
		if conf := filepath.Join(home, "conf"); dir != home {
			jars = append([]string{conf}, jars...)
		}
		return jars, nil
	}
	return nil, errors.New("holds no jar, nor does its folder lib")
}

// ordered puts zookeeper-jute before zookeeper, whose manifest, in Debian's package, names the
// installed jute.
func ordered(jars []string) ([]string, error) {
	rank := func(path string) int {
		switch name := filepath.Base(path); {
		case strings.HasPrefix(name, "zookeeper-jute"):
			return 0
		case strings.HasPrefix(name, "zookeeper"):
			return 1
		}
		return 2
	}
	if !slices.ContainsFunc(jars, func(path string) bool { return rank(path) == 1 }) {
		return nil, errors.New("names no zookeeper jar")
	}
	jars = slices.Clone(jars)
	slices.SortStableFunc(jars, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return jars, nil
}

// isLogger reports whether a jar is the logging interface that every release includes.
func isLogger(path string) bool { return strings.HasPrefix(filepath.Base(path), "slf4j-api") }
