// Package match makes the contestants do the same things at the same servers, one after the other,
// round after round.
package match

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zklock/locker/tests/bench/servers"
)

// Contestant is one lock, or the floor.
type Contestant struct {
	Name  string // short, for -only
	Title string
	Kind  servers.Kind

	// with the programs in dir; nil: this program, started with -contestant
	command func(dir string) *exec.Cmd
}

// Floor is the contestant that everything is compared with: raw writes, which exclude no one.
const Floor = "raw"

const local = "local"

// Contestants are in the order in which tables show them.
var Contestants = []Contestant{
	{Floor, "a create, then a delete: plain driver", servers.ZooKeeper, nil},
	{"zklock", "zklock", servers.ZooKeeper, nil},
	{local, "zklock, WithLocalHandoff", servers.ZooKeeper, nil},
	{"zk.Lock", "go-zookeeper zk.Lock", servers.ZooKeeper, nil},
	{"curator", "Curator InterProcessMutex", servers.ZooKeeper, java},
	{"kazoo", "Kazoo Lock", servers.ZooKeeper, python},
	{"etcd", "etcd concurrency.Mutex", servers.Etcd, nil},
}

// sources are the programs in other languages.
//
//go:embed testdata
var sources embed.FS

const jars = "/usr/share/java/"

func java(dir string) *exec.Cmd {
	return exec.Command("java", "-Xmx1g", "-Xss512k", "-XX:-UsePerfData", "-cp", classpath(dir),
		"Driver")
}

func classpath(dir string) string {
	return strings.Join([]string{dir, jars + "curator-recipes.jar", jars + "slf4j-nop.jar"},
		string(os.PathListSeparator))
}

// interpreter is Debian's own: another one earlier on the PATH does not find Debian's packages.
const interpreter = "/usr/bin/python3"

func python(dir string) *exec.Cmd {
	return exec.Command(interpreter, filepath.Join(dir, "driver.py"))
}

// missing returns why a contestant can't take part; nil if it can. It compiles the contestant's
// program if necessary.
func (c Contestant) missing(ctx context.Context, dir string, s *servers.Site) error {
	if !s.Has(c.Kind) {
		return errors.New("no etcd: apt-get install etcd-server")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var check *exec.Cmd
	var install string
	switch c.Name {
	case "curator":
		check = exec.CommandContext(ctx, "javac", "-cp", classpath(dir), "-d", dir,
			filepath.Join(dir, "Driver.java"))
		install = "libcurator-recipes-java default-jdk-headless"
	case "kazoo":
		check = exec.CommandContext(ctx, interpreter, "-c", "import kazoo.recipe.lock")
		install = "python3-kazoo"
	default:
		return nil
	}
	if out, err := check.CombinedOutput(); err != nil {
		said := strings.TrimSpace(string(out))
		return fmt.Errorf("apt-get install %s: %w: %s", install, err,
			said[strings.LastIndexByte(said, '\n')+1:])
	}
	return nil
}

// find returns the contestants and settings that -only names; all of a category of which it names
// none.
func find(only []string) (cs []Contestant, ss []Setting, err error) {
	for _, name := range only {
		c := slices.IndexFunc(Contestants, func(c Contestant) bool { return c.Name == name })
		s := slices.IndexFunc(Settings, func(s Setting) bool { return s.Name == name })
		switch {
		case c >= 0:
			cs = append(cs, Contestants[c])
		case s >= 0:
			ss = append(ss, Settings[s])
		default:
			return nil, nil, fmt.Errorf("-only: nothing is called %q", name)
		}
	}
	if cs == nil {
		cs = Contestants
	}
	if ss == nil {
		ss = Settings
	}
	return cs, ss, nil
}
