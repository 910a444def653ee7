//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
)

// startError returns the error of a command that can't be run, with the exit code that shells give
// it.
func startError(name string, err error) error {
	var why *exec.Error
	switch {
	case errors.As(err, &why):
		err = why.Err
	case errors.Is(err, fs.ErrNotExist):
		// The command itself existed when lookup found it.
		err = fmt.Errorf("%w: the interpreter that its first line names, "+
			"or the loader, is missing", err)
	}
	code := exitNoExec
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		code = exitNotFound
	case errors.Is(err, syscall.ENOEXEC):
		err = fmt.Errorf("%w: a script needs a first line such as #!/bin/sh", err)
	}
	return &exitError{code, fmt.Errorf("%q: %w", name, err)}
}

// lookup returns the file of a command, which it searches for as a shell does. Its error has the
// exit code that a shell gives it.
func lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	// A shell runs a command that is found through "." in PATH.
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", startError(name, err)
	}
	return path, nil
}
