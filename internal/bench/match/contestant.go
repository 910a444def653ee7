// Package match makes the contestants do the same things at the same servers, one after the other, round after round.
package match

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zklock/locker/internal/bench/servers"
)

// Contestant is one lock, or the floor.
type Contestant struct {
	Name  string       `json:"name"` // short, for -only
	Title string       `json:"title"`
	Kind  servers.Kind `json:"kind"`
	Lock  bool         `json:"lock"` // false: the floor, which excludes no one
	Mode  bool         `json:"mode"` // an option of ours, for the settings in which it matters

	command func(tools) (*exec.Cmd, error)
}

// tools is where the contestants' programs are.
type tools struct {
	self string // this program: started with -contestant it is one of the Go contestants
	dir  string // for compiled classes
}

// Contestants are in the order in which tables show them.
var Contestants = []Contestant{
	{Name: "raw", Title: "floor: create + delete, plain driver", Kind: servers.ZooKeeper, command: golang("raw")},
	{Name: "raw-session", Title: "floor, on our session", Kind: servers.ZooKeeper, command: golang("raw-session")},
	{Name: "raw-list", Title: "floor with a list, on our session", Kind: servers.ZooKeeper, command: golang("raw-list")},
	{Name: "zklock", Title: "zklock", Kind: servers.ZooKeeper, Lock: true, command: golang("zklock")},
	{Name: "local", Title: "zklock, WithLocalHandoff", Kind: servers.ZooKeeper, Lock: true, Mode: true, command: golang("local")},
	{Name: "zk.Lock", Title: "go-zookeeper zk.Lock", Kind: servers.ZooKeeper, Lock: true, command: golang("zk.Lock")},
	{Name: "curator", Title: "Curator InterProcessMutex", Kind: servers.ZooKeeper, Lock: true, command: java},
	{Name: "kazoo", Title: "Kazoo Lock", Kind: servers.ZooKeeper, Lock: true, command: python},
	{Name: "raw-etcd", Title: "etcd's floor: put + delete", Kind: servers.Etcd, command: golang("raw-etcd")},
	{Name: "etcd", Title: "etcd concurrency.Mutex", Kind: servers.Etcd, Lock: true, command: golang("etcd")},
}

func golang(name string) func(tools) (*exec.Cmd, error) {
	return func(t tools) (*exec.Cmd, error) { return exec.Command(t.self, "-contestant", name), nil }
}

// Sources is where the programs in other languages are, from the directory of this module.
const Sources = "testdata"

const jars = "/usr/share/java/"

func java(t tools) (*exec.Cmd, error) {
	return exec.Command("java", "-Xmx1g", "-Xss512k", "-XX:-UsePerfData", "-cp", classpath(t.dir), "Driver"), nil
}

func classpath(dir string) string {
	return strings.Join([]string{dir, jars + "curator-recipes.jar", jars + "slf4j-nop.jar"}, string(os.PathListSeparator))
}

// interpreter is Debian's own: another one earlier on the PATH does not find Debian's packages.
const interpreter = "/usr/bin/python3"

func python(t tools) (*exec.Cmd, error) {
	return exec.Command(interpreter, filepath.Join(t.dir, "driver.py")), nil
}

// newTools prepares the programs, in dir. source returns the text of a program below testdata.
func newTools(self, dir string, source func(name string) ([]byte, error)) (tools, error) {
	t := tools{self, dir}
	for _, name := range []string{"Driver.java", "driver.py"} {
		text, err := source(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// missing returns why a contestant can't take part; nil if it can. It compiles the contestant's program if necessary.
func (c Contestant) missing(ctx context.Context, t tools, s *servers.Site) error {
	if !s.Has(c.Kind) {
		return errors.New("no etcd: apt-get install etcd-server, or -etcd")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var check *exec.Cmd
	var install string
	switch c.Name {
	case "curator":
		check = exec.CommandContext(ctx, "javac", "-cp", classpath(t.dir), "-d", t.dir, filepath.Join(t.dir, "Driver.java"))
		install = "libcurator-recipes-java default-jdk-headless"
	case "kazoo":
		check = exec.CommandContext(ctx, interpreter, "-c", "import kazoo.recipe.lock")
		install = "python3-kazoo"
	default:
		return nil
	}
	if out, err := check.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get install %s: %w: %s", install, err, lastLine(string(out)))
	}
	return nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// find returns the contestants and settings that -only names; all of a category of which it names none.
func find(only []string) (cs []Contestant, ss []Setting, err error) {
	for _, name := range only {
		c := slices.IndexFunc(Contestants, func(c Contestant) bool { return c.Name == name })
		s := slices.IndexFunc(Settings, func(s Setting) bool { return s.Name == name })
		switch {
		case c >= 0:
			cs = append(cs, Contestants[c])
		case s >= 0:
			ss = append(ss, Settings[s])
		case !slices.Contains(extras, name):
			return nil, nil, fmt.Errorf("-only: nothing is called %q", name)
		}
	}
	if cs == nil {
		cs = Contestants
	}
	if ss == nil && !slices.ContainsFunc(only, func(n string) bool { return slices.Contains(extras, n) }) {
		ss = Settings
	}
	return cs, ss, nil
}
