//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// whileRead returns a context that ends, with EPIPE, when out is a pipe that nobody reads any more.
func whileRead(ctx context.Context, out io.Writer) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if f, ok := out.(interface{ Fd() uintptr }); ok {
		go func() { // ends with the reader, or with the process
			fds := []unix.PollFd{{Fd: int32(f.Fd())}} // errors and hang-ups are always reported
			for {
				_, err := unix.Poll(fds, -1)
				if errors.Is(err, unix.EINTR) {
					continue
				}
				if err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
					cancel(syscall.EPIPE)
				}
				return
			}
		}()
	}
	return ctx, cancel
}
