package failure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
)

// Ends of a session: the causes of Session.Err, and of every context derived from Session.Context.
var (
	// ErrLost matches, by errors.Is, every end that the caller did not ask for: ErrExpired,
	// ErrLeaseExpired, ErrAuth.
	ErrLost = errors.New("session: lost")

	// ErrExpired says that the ensemble ended the session, which was silent for too long or was
	// closed by force. Its ephemeral znodes are gone.
	ErrExpired error = Loss("session: expired by the ensemble")

	// ErrLeaseExpired says that the ensemble may have ended the session, since nothing was heard
	// for too long, or a server answered a reconnection with another session. Its ephemeral znodes
	// exist until the ensemble deletes them.
	ErrLeaseExpired error = Loss("session: lease expired, nothing heard from the ensemble")

	// ErrAuth says that the ensemble refused the credentials of Config.Auth or Config.SASL, or
	// demands others.
	ErrAuth error = Loss("session: credentials refused")

	// ErrClosed says that Close was called. It does not match ErrLost.
	ErrClosed = errors.New("session: closed")
)

// Failures of one call.
var (
	// ErrUnknownOutcome matches, by errors.Is, the error of a write that may or may not have been
	// carried out: it was sent and got no reply (ErrNoReply), or a server in trouble answered it. A
	// write whose error does not match it was certainly not carried out.
	ErrUnknownOutcome = errors.New("session: outcome unknown")

	// ErrNoReply matches, by errors.Is, the error of a write that got no reply: the connection
	// broke, or the caller's context ended. An answer that says "try again" counts as no reply. The
	// write may be repeated at once; after others a pause is due.
	ErrNoReply = errors.New("session: no reply")

	// ErrNotSent matches, by errors.Is, the error of a request that was never sent and so has no
	// effect: ctx or the session ended while it waited for a connection, or it was too large.
	ErrNotSent = errors.New("session: not sent")

	// ErrTooLarge says that a request is longer than servers accept (Config.JuteMaxBuffer), and was
	// not sent; or that a reply is longer than this package accepts (32 MB), and was skipped. The
	// connection stays; the same call would fail again.
	ErrTooLarge = errors.New("session: too large")

	// ErrConnection says that the connection broke after the request was sent and before its reply
	// came.
	ErrConnection = errors.New("session: connection lost before the reply")

	// ErrUnreachable and ctx's error both match the error of a call whose ctx ended while there was
	// no connection. The message says what each server has answered.
	ErrUnreachable = errors.New("session: no server reachable")

	// ErrGarbled says that the server sent something that is not ZooKeeper's protocol. The
	// connection was given up.
	ErrGarbled = errors.New("session: garbled frame from the server")
)

// Loss returns an error that matches ErrLost.
func Loss(msg string) error { return &lossError{msg} }

type lossError struct{ msg string }

func (e *lossError) Error() string        { return e.msg }
func (e *lossError) Is(target error) bool { return target == ErrLost }

// OpError is the error of one operation on the ensemble.
type OpError struct {
	Op   string // "create", "delete", …
	Path string // as the caller named it
	// the server's answer (zk.ErrNoNode, …), a context's error, ErrConnection, or the session's end
	Err error

	Outcome Outcome
}

// Outcome says what is known about an operation that has failed.
type Outcome uint8

const (
	NotDone Outcome = iota // it had no effect: a read, or a write that was not carried out
	NoReply                // no server has answered it, and it may have been carried out
	InDoubt                // a server has answered it, and it may have been carried out
	NotSent                // it was never sent
)

// Error names the operation, the path (escaped, and cut if long) and the reason.
func (e *OpError) Error() string {
	s := "session: " + e.Op + " " + text.Foreign(e.Path) + ": " + e.Err.Error()
	if e.unknown() {
		s += " (outcome unknown)"
	}
	return s
}

func (e *OpError) unknown() bool { return e.Outcome == NoReply || e.Outcome == InDoubt }

func (e *OpError) Unwrap() error { return e.Err }

// Is matches ErrUnknownOutcome if the write may have been carried out, ErrNoReply too if no server
// has answered it, and ErrNotSent if the request was never sent.
func (e *OpError) Is(target error) bool {
	switch target {
	case ErrUnknownOutcome:
		return e.unknown()
	case ErrNoReply:
		return e.Outcome == NoReply
	case ErrNotSent:
		return e.Outcome == NotSent
	}
	return false
}

// Text is for the packages of this module: it returns err's text, in which a refusal by an access
// list is called that. The driver's text, "not authenticated", would mislead an authenticated
// client.
func Text(err error) string {
	return strings.ReplaceAll(err.Error(), zk.ErrNoAuth.Error(), "refused by an access list")
}

func TooLarge(what string, size, limit int) error {
	return fmt.Errorf("%w: a %s of %d bytes, and %d is the limit", ErrTooLarge, what, size, limit)
}

// Stranger returns an error that says that what answered the handshake, and began so, is not a
// ZooKeeper server. It matches ErrGarbled.
func Stranger(began []byte) error { return &strangerError{began} }

type strangerError struct{ began []byte }

func (e *strangerError) Error() string {
	switch {
	case bytes.HasPrefix(e.began, []byte("SSH-")):
		return "this is an SSH server, not ZooKeeper"
	case bytes.HasPrefix(e.began, []byte("HTTP")):
		return "this is an HTTP server, not ZooKeeper's client port"
	case bytes.HasPrefix(e.began, []byte{0x15, 0x03}): // an alert
		return "this port speaks TLS, and the connection was made without"
	}
	return fmt.Sprintf("this is not a ZooKeeper server: its answer begins with %q", e.began)
}

func (e *strangerError) Is(target error) bool { return target == ErrGarbled }

// Ended is for the packages of this module: it joins the end that has stopped a call, ctx's or else
// over, with what has happened to the call or was waited for, so that errors.Is finds both. If ctx
// has ended, the result is an *EndedError. Of the cause with which ctx was cancelled only the text
// is kept: it may be the error of another operation, as with errgroup, and would be taken for this
// one's outcome. If there is no end, or what says so already, or is nil, it returns what.
func Ended(ctx context.Context, over, what error) error {
	err := ctx.Err()
	switch cause := context.Cause(ctx); {
	case what == nil:
		return nil
	case err == nil && over != nil && !errors.Is(what, over):
		return fmt.Errorf("%w (%w)", over, what)
	case err == nil || errors.Is(what, err):
		return what
	case cause != err: //nolint:errorlint // identity: is there a cause beside the plain error?
		err = fmt.Errorf("%w (%s)", err, text.Foreign(cause.Error()))
	}
	return &EndedError{err, what}
}

// EndedError is the error of a call whose context has ended. It matches both of its parts.
type EndedError struct {
	End  error // the context's error, with its cause as text
	What error // what has happened to the call, or was waited for
}

func (e *EndedError) Error() string { return e.End.Error() + " while " + e.What.Error() }

func (e *EndedError) Unwrap() []error { return []error{e.End, e.What} }

// IsOne is for the packages of this module: it reports whether err matches one of targets.
func IsOne(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
