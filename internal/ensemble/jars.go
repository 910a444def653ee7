package ensemble

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	jarDir  = "/usr/share/java"
	install = "apt-get install libzookeeper-java default-jre-headless"
)

// jars are what a server needs beyond what the manifest of zookeeper.jar names: a logger that prints to standard
// error, and the parts of netty that Debian's manifest forgets.
var jars = []string{
	"zookeeper.jar", "slf4j-simple.jar",
	"netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar",
}

func classpath() string {
	paths := make([]string, len(jars))
	for i, jar := range jars {
		paths[i] = filepath.Join(jarDir, jar)
	}
	return strings.Join(paths, string(os.PathListSeparator))
}

// installed returns an error that says what to install when the servers' software is missing.
func installed() error {
	var errs []error
	if _, err := exec.LookPath("java"); err != nil {
		errs = append(errs, err)
	}
	for _, path := range filepath.SplitList(classpath()) {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ensemble: ZooKeeper's servers are not installed; run: %s (or name a running ensemble in %s): %w",
			install, serversEnv, err)
	}
	return nil
}
