//go:build !unix

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
)

// Without process groups zklock cannot end a command with all that it started. So there is no run
// and no elect here. The other commands work.

var errNoGroups = &exitError{exitFailed,
	errors.New("run and elect need a Unix: there are no process groups here")}

func (a *app) run(*lockFlags, string, []string) error { return errNoGroups }

func (a *app) elect(*lockFlags, string, []string, string) error { return errNoGroups }

// interruptible calls fn with a context that ends with Ctrl-C. After Ctrl-C it returns the exit
// code as an error.
func (a *app) interruptible(fn func(ctx context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := fn(ctx)
	if ctx.Err() != nil {
		return &exitError{exitSignal + 2, nil}
	}
	return err
}

// whileRead returns ctx with a cancel function. Here only a failed write shows that nobody reads.
func whileRead(ctx context.Context, _ io.Writer) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(ctx)
}

// guardCommand never matches here.
const guardCommand = "\x00"

func guardMain([]string) int { return exitUsage }
