//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// whileRead returns a context that ends with EPIPE when out is a pipe that nobody reads any more.
func whileRead(ctx context.Context, out io.Writer) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if f, ok := out.(interface{ Fd() uintptr }); ok {
		go func() { // ends with the reader, or with the process
			if waitUnread(int32(f.Fd())) {
				cancel(syscall.EPIPE)
			}
		}()
	}
	return ctx, cancel
}

// waitUnread waits until the pipe fd has no reader any more. It returns false if that can't be
// waited for.
func waitUnread(fd int32) bool {
	fds := []unix.PollFd{{Fd: fd}} // poll reports errors and hang-ups although no event is named
	_, err := unix.Poll(fds, -1)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll(fds, -1)
	}
	return err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
