package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/zklock"
)

// Exit codes. They are those of sysexits.h where it has one, and those of shells for a command that
// can't be run.
const (
	exitFailed      = 1   // anything without a code of its own
	exitUsage       = 64  // bad command line, path or option
	exitUnreachable = 69  // no server answered in time
	exitLost        = 70  // the lock was lost, or nearly so, and the command was told to end
	exitBusy        = 75  // another client has the lock
	exitRefused     = 77  // the ensemble refused the credentials or the access
	exitNoExec      = 126 // the command was found and can't be run
	exitNotFound    = 127 // the command, or the interpreter that it names, was not found
	exitSignal      = 128 // plus the signal's number
)

// exitTable is the table of exit codes in the help.
const exitTable = `Exit codes:
  0-255  the command's own; 128+N when signal N ended it
  1      anything without a code of its own
  64     usage: a bad flag, path or value
  69     no server could be reached in time
  70     the lock was lost, or so nearly that the command got SIGTERM
  75     busy: another client has the lock, or the wait timed out; -E sets another code, -q suppresses the message
  77     the ensemble refused the credentials or the access
  126    the command can't be run
  127    the command, or the interpreter that it names, was not found
  128+N  signal N arrived while waiting`

// exitRules says with which codes the commands end that run no command of the user.
const exitRules = `ls, queue, leader, done and prune end with 0 when they could look, also when
there is nothing to show: standard error says so then, except with --quiet. evict, resize and
done --forget end with 1 when what they would change is not there.

doctor ends with 69 when no server serves this client, with 1 when it finds another danger (locks
are not safe, or don't work), and with 0 when it finds none, even with warnings.`

// exitError is an error with its own exit code. If it has no message, nothing is printed.
type exitError struct {
	code int
	err  error // nil if there is no message
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef returns an error of the command line.
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// codeOf returns the exit code of a failure.
func codeOf(err error) int {
	var own *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own.code
	case errors.Is(err, syscall.EPIPE):
		return exitSignal + 13 // of SIGPIPE, which not every system has
	case errors.Is(err, zklock.ErrBusy):
		return exitBusy
	case errors.Is(err, zklock.ErrPath),
		errors.Is(err, zklock.ErrInvalid),
		errors.Is(err, zklock.ErrConflict):
		return exitUsage
	case errors.Is(err, zklock.ErrAuth), errors.Is(err, zk.ErrNoAuth):
		return exitRefused
	case errors.Is(err, zklock.ErrLost):
		return exitLost
	case failure.IsOne(err, zklock.ErrUnreachable, session.ErrConnection, context.DeadlineExceeded):
		return exitUnreachable
	}
	return exitFailed
}

// report prints a failure on one line, since it may contain foreign text from znodes. It prints
// nothing for an exitError without a message, nor if the reader of our output has closed the pipe.
func report(w io.Writer, err error) {
	var own *exitError
	if err == nil || errors.As(err, &own) && own.err == nil || errors.Is(err, syscall.EPIPE) {
		return
	}
	if errors.Is(err, zk.ErrNoAuth) {
		err = fmt.Errorf("%w: see --auth", err)
	}
	notice(w, "%s", err)
}

// notice prints one line that begins with "zklock: ".
func notice(w io.Writer, format string, args ...any) {
	text := strings.TrimPrefix(fmt.Sprintf(format, args...), "zklock: ")
	fmt.Fprintf(w, "zklock: %s\n", clean(text))
}
