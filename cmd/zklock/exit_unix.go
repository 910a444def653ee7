//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
)

// startError is the failure to run a command, with the exit code that shells give it.
func startError(name string, err error) error {
	var why *exec.Error
	if errors.As(err, &why) {
		err = why.Err
	} else if errors.Is(err, fs.ErrNotExist) { // it was there when it was looked up
		err = fmt.Errorf("%w: the interpreter that its first line names, or the loader, is missing", err)
	}
	code := exitNoExec
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		code = exitNotFound
	} else if errors.Is(err, syscall.ENOEXEC) {
		err = fmt.Errorf("%w: a script needs a first line such as #!/bin/sh", err)
	}
	return &exitError{code, fmt.Errorf("%q: %w", name, err)}
}

// lookup finds the command, as a shell does and with its exit codes.
func lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) { // found through "." in PATH: a shell would run it
		err = nil
	}
	if err == nil {
		return path, nil
	}
	return "", startError(name, err)
}
