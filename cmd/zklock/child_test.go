//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// testCommand is the command that zklock runs in tests. Its arguments are its actions, in order:
//
//	diary FILE     record there the actions that follow and, from live or until-term on, a sign of
//	               life every 5 ms: it shows that all earlier actions are done
//	stubborn       ignore SIGTERM
//	note           record the signals that arrive
//	family         start another one, with the same arguments, in the same process group
//	orphan         as family, and end at once
//	daemon         as family, but in a session of its own
//	live           until it is killed
//	until-term     live until SIGTERM or SIGINT, and exit with 7
//	echo           copy standard input to standard output
//	much N         write N bytes to standard output
//	exit N
const testCommand = "testcommand"

func testMain(args []string) int {
	t := &testProcess{name: "child", args: args, file: io.Discard}
	if name := os.Getenv("TESTCOMMAND_NAME"); name != "" {
		t.name = name
	}
	rest := args
	next := func() string {
		if len(rest) == 0 {
			return ""
		}
		word := rest[0]
		rest = rest[1:]
		return word
	}
	for len(rest) > 0 {
		code, ends, err := t.act(next(), next)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 99
		}
		if ends {
			return code
		}
	}
	return 0
}

// act carries out one action. argument returns the action's argument. ends says that the process
// ends with code now.
func (t *testProcess) act(action string, argument func() string) (code int, ends bool, err error) {
	switch action {
	case "diary":
		return 0, false, t.open(argument())
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "note":
		t.note()
	case "family":
		return 0, false, t.multiply(nil)
	case "orphan":
		return 0, t.name == "child", t.multiply(nil)
	case "daemon":
		return 0, false, t.multiply(&syscall.SysProcAttr{Setsid: true})
	case "live":
		t.live()
		select {}
	case "until-term":
		t.untilTerm()
		return 7, true, nil
	case "echo":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return 0, false, err
	case "much":
		w := bufio.NewWriter(os.Stdout)
		w.WriteString(strings.Repeat("x", integer(argument())))
		w.Flush()
	case "exit":
		return integer(argument()), true, nil
	}
	return 0, false, nil
}

// testProcess is one process of testCommand.
type testProcess struct {
	name string // "child", or "grandchild" if a child has started it
	args []string
	file io.Writer // the diary
}

func (t *testProcess) write(what any) { fmt.Fprintf(t.file, "%s %v\n", t.name, what) }

func (t *testProcess) open(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	t.file = f
	t.write(fmt.Sprint("pid ", os.Getpid()))
	return nil
}

func (t *testProcess) live() {
	if t.file == io.Discard {
		return
	}
	go func() { // ends with the process
		for beats := time.NewTicker(5 * time.Millisecond); ; <-beats.C {
			t.write(time.Now().UnixNano())
		}
	}()
}

func (t *testProcess) untilTerm() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	t.write("ready")
	t.live()
	<-c
	t.write("told")
}

// integer returns the number that text begins with, or 0.
func integer(text string) (n int) {
	fmt.Sscan(text, &n)
	return n
}

func (t *testProcess) note() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.Signal(40))
	go func() { // ends with the process
		for sig := range c {
			t.write(fmt.Sprint("signal ", int(sig.(syscall.Signal))))
		}
	}()
}

// multiply starts a grandchild, if this process is the child.
func (t *testProcess) multiply(attr *syscall.SysProcAttr) error {
	if t.name != "child" {
		return nil
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path:   exe,
		Args:   append([]string{testCommand}, t.args...),
		Env:    append(os.Environ(), "TESTCOMMAND_NAME=grandchild"),
		Stdout: os.Stdout,
		Stderr: os.Stderr,

		SysProcAttr: attr,
	}
	return cmd.Start()
}
