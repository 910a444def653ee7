package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	curatorSource = "https://github.com/apache/curator"
	javaDir       = "/usr/share/java"
)

// junitPackages are what Curator's tests need besides Curator, by their Debian names.
var junitPackages = []string{"junit5", "libopentest4j-java", "libapiguardian-java"}

// curatorJars are Curator's, ZooKeeper's client's and those that they need, as Debian installs them.
var curatorJars = strings.Fields("curator-recipes curator-framework curator-client zookeeper zookeeper-jute guava failureaccess" +
	" slf4j-api slf4j-nop jackson-databind jackson-core jackson-annotations netty-all netty-codec netty-common" +
	" netty-buffer netty-handler netty-transport netty-resolver netty-transport-native-epoll netty-transport-native-unix-common")

// curatorKeeps are the files of a checkout that the tests of locks are compiled with. Their servers are left out: ours are
// in testdata/curator.
var curatorKeeps = []string{
	"curator-recipes/src/test/java/org/apache/curator/framework/recipes/locks/*.java",
	"curator-framework/src/test/java/org/apache/curator/framework/imps/TestCleanState.java",
	"curator-test/src/main/java/org/apache/curator/test/compatibility/CuratorTestBase.java",
	"curator-test/src/main/java/org/apache/curator/test/compatibility/Timing2.java",
	"curator-test/src/main/java/org/apache/curator/test/BaseClassForTests.java",
	"curator-test/src/main/java/org/apache/curator/test/DirectoryUtils.java",
	"curator-test/src/main/java/org/apache/curator/test/FailedServerStartException.java",
	"curator-test/src/main/java/org/apache/curator/test/InstanceSpec.java",
	"curator-test/src/main/java/org/apache/curator/test/KillSession.java",
	"curator-test/src/main/java/org/apache/curator/test/Timing.java",
	"curator-test/src/main/java/org/apache/curator/test/WatchersDebug.java",
}

//go:embed testdata/curator
var curatorFiles embed.FS

// curator runs Curator's tests of its locks, of the release whose jars are installed.
func curator(ctx context.Context, w *workshop) (report, error) {
	jars, err := filepath.Glob(filepath.Join(javaDir, "curator-recipes-*.jar"))
	if err != nil {
		return report{}, err
	}
	if len(jars) == 0 {
		return report{}, fmt.Errorf("no jars of Curator's in %s: package libcurator-recipes-java has them", javaDir)
	}
	r := report{version: strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "curator-recipes-"), ".jar")}
	source, err := w.curatorSource(ctx, r.version)
	if err != nil {
		return r, err
	}
	classes, path, err := w.compileCurator(ctx, source)
	if err != nil {
		return r, err
	}
	tests, err := filepath.Glob(filepath.Join(source, filepath.Dir(curatorKeeps[0]), "Test*.java"))
	if err != nil {
		return r, err
	}
	for _, test := range tests {
		name := strings.TrimSuffix(filepath.Base(test), ".java")
		// The stand-in for java comes first in the path, so the real one is named.
		cmd := exec.CommandContext(ctx, w.java, "-cp", classes+":"+path, "Run", "org.apache.curator.framework.recipes.locks."+name)
		cmd.Dir, cmd.Env, cmd.Stderr = w.dir, w.environment(), w.output
		out, err := cmd.Output()
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		if err := r.countLines(name, out, w); err != nil {
			return r, err
		}
	}
	if r.passed == 0 {
		return r, errors.New("no test has passed")
	}
	return r, nil
}

// curatorSource returns a checkout of the release.
func (w *workshop) curatorSource(ctx context.Context, version string) (string, error) {
	if w.curator != "" {
		return filepath.Abs(w.curator)
	}
	dir := filepath.Join(w.dir, "curator")
	cmd := exec.CommandContext(ctx, "git", "clone", "-q", "--depth", "1", "--branch", "apache-curator-"+version, curatorSource, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("git clone %s (-curator names a checkout): %s: %w", curatorSource, bytes.TrimSpace(out), err)
	}
	return dir, nil
}

// compileCurator returns the directory of the tests' classes, and the rest of their class path.
func (w *workshop) compileCurator(ctx context.Context, source string) (classes, path string, err error) {
	root, err := w.debian(ctx, junitPackages)
	if err != nil {
		return "", "", err
	}
	jars, err := filepath.Glob(filepath.Join(root, javaDir, "*.jar"))
	if err != nil {
		return "", "", err
	}
	// Of the console, which holds JUnit's jars once more, nothing is needed.
	jars = slices.DeleteFunc(jars, func(jar string) bool { return strings.Contains(jar, "console") })
	for _, name := range curatorJars {
		jars = append(jars, filepath.Join(javaDir, name+".jar"))
	}
	path = strings.Join(jars, ":")
	var files []string
	for _, keep := range curatorKeeps {
		found, err := filepath.Glob(filepath.Join(source, keep))
		if err != nil {
			return "", "", err
		}
		if len(found) == 0 {
			return "", "", fmt.Errorf("%s is no checkout of Curator's: no %s in it", source, keep)
		}
		files = append(files, found...)
	}
	ours, err := fs.Sub(curatorFiles, "testdata/curator")
	if err != nil {
		return "", "", err
	}
	dir := filepath.Join(w.dir, "curator-servers")
	if err := os.CopyFS(dir, ours); err != nil {
		return "", "", err
	}
	more, err := filepath.Glob(filepath.Join(dir, "*.java"))
	if err != nil {
		return "", "", err
	}
	classes = filepath.Join(w.dir, "curator-classes")
	args := append([]string{"-nowarn", "-d", classes, "-cp", path}, append(files, more...)...)
	if out, err := exec.CommandContext(ctx, "javac", args...).CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("javac: %s: %w", out, err)
	}
	return classes, path, nil
}

// countLines counts the results of Run.java.
func (r *report) countLines(class string, out []byte, w *workshop) error {
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		if _, err := fmt.Fprintln(w.output, lines.Text()); err != nil {
			return err
		}
		outcome, test, _ := strings.Cut(lines.Text(), " ")
		switch outcome {
		case "PASS":
			r.passed++
		case "SKIP":
			r.skipped++
		case "FAIL":
			r.failed = append(r.failed, class+"."+test)
		}
	}
	return lines.Err()
}
