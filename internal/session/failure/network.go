package failure

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
)

// ErrUnanswered says that a server hung up on a handshake.
var ErrUnanswered = errors.New(
	"closed the connection without an answer to the handshake: no quorum, too many clients, or a port that wants TLS?")

// HungUp reports whether err says that the other side has closed the connection.
func HungUp(err error) bool {
	return IsOne(err, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET,
		syscall.EPIPE)
}

// IsTimeout reports whether err says that time was over.
func IsTimeout(err error) bool {
	if err == nil { // before the variable, which errors.As moves to the heap
		return false
	}
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// Plain reduces an error that matches one of package context to its text: the context was the
// session's, and the caller would take its end for the end of his own.
func Plain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.New(err.Error())
	}
	return err
}
