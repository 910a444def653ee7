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
//	diary FILE     record there the actions that follow and, from live or until-term on, a sign of life every 5 ms: it shows
//	               that all earlier actions are done
//	stubborn       ignore SIGTERM
//	note           record the signals that arrive
//	family         start another one, with the same arguments, in the same process group
//	orphan         as family, and end at once
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
	for len(args) > 0 {
		var word, arg string
		word, args = args[0], args[1:]
		if len(args) > 0 {
			arg = args[0]
		}
		switch word {
		case "diary":
			if err := t.open(arg); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 99
			}
			args = args[1:]
		case "stubborn":
			signal.Ignore(syscall.SIGTERM)
		case "note":
			t.note()
		case "family", "orphan":
			if t.name == "child" {
				if err := t.multiply(); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return 99
				}
				if word == "orphan" {
					return 0
				}
			}
		case "live":
			t.live()
			select {}
		case "until-term":
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
			t.write("ready")
			t.live()
			<-c
			t.write("told")
			return 7
		case "echo":
			if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
				return 99
			}
		case "much":
			var n int
			fmt.Sscan(arg, &n)
			w := bufio.NewWriter(os.Stdout)
			w.WriteString(strings.Repeat("x", n))
			w.Flush()
			args = args[1:]
		case "exit":
			var n int
			fmt.Sscan(arg, &n)
			return n
		}
	}
	return 0
}

type testProcess struct {
	name string
	args []string
	file io.Writer
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

func (t *testProcess) note() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.Signal(40))
	go func() { // ends with the process
		for sig := range c {
			t.write(fmt.Sprint("signal ", int(sig.(syscall.Signal))))
		}
	}()
}

func (t *testProcess) multiply() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{Path: exe, Args: append([]string{testCommand}, t.args...), Env: append(os.Environ(), "TESTCOMMAND_NAME=grandchild"),
		Stdout: os.Stdout, Stderr: os.Stderr}
	return cmd.Start()
}
