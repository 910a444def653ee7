package zklock

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/text"
)

// Ends of a hold: what context.Cause of its context, and Hold.Err, are or wrap.
var (
	// ErrUnlocked says that the hold was released by Unlock. It does not match ErrLost.
	ErrUnlocked = errors.New("zklock: unlocked")
	// ErrLost matches every end that the holder did not ask for: the five below, and ErrAuth.
	ErrLost = session.ErrLost
	// ErrSessionExpired says that the ensemble ended the session.
	ErrSessionExpired = session.ErrExpired
	// ErrLeaseExpired says that nothing was heard for so long that the ensemble may have ended the
	// session.
	ErrLeaseExpired = session.ErrLeaseExpired
	// ErrNodeDeleted says that another client deleted the hold's znode, as admin.Evict does.
	ErrNodeDeleted error = failure.Loss("zklock: the lock's znode was deleted by somebody else")
	// ErrNodeGone says that the hold's znode is gone, and that no server has said in time whether
	// another client deleted it or the ensemble ended the session.
	ErrNodeGone error = failure.Loss(
		"zklock: the lock's znode is gone: it was deleted by somebody else, or with the session")
	// ErrMaxHold says that WithMaxHold's time was over.
	ErrMaxHold error = failure.Loss("zklock: held for longer than the maximum")
)

// Failures of a call.
var (
	// ErrBusy says that another contender holds the lock or waits for it (TryLock, WithMaxWait). It
	// is a *BusyError.
	ErrBusy = errors.New("zklock: busy")
	// ErrUnreachable says that no server answered in time: before ctx ended, whose error matches
	// too, within WithMaxWait's time, or within a try's. Nothing is known about the lock.
	ErrUnreachable = session.ErrUnreachable
	// ErrAuth says that the ensemble refused the credentials (WithAuth, WithSASL), or demands
	// others. It matches ErrLost.
	ErrAuth = session.ErrAuth
	// ErrNotRun matches the error of Do, TryDo or a Job if and only if the function was not called.
	ErrNotRun = errors.New("zklock: not run")
	// ErrNotRecorded matches the error of a Job whose function has returned nil, and whose run is
	// not known to be recorded.
	ErrNotRecorded = errors.New("zklock: the run is not known to be recorded")
	// ErrDeadlock says that the call would wait for its own caller: its context is of a hold of the
	// same lock.
	ErrDeadlock = queue.ErrDeadlock
	// ErrNoLeader says that the election has no leader now.
	ErrNoLeader = errors.New("zklock: no leader")
	// ErrClosed says that the Client was closed.
	ErrClosed = session.ErrClosed
	// ErrPath says that a path can't be a lock's; the message names the path and the rule.
	ErrPath = session.ErrPath
	// ErrConflict says that something other than this kind of lock uses the path, or keeps its data
	// there.
	ErrConflict = queue.ErrConflict
	// ErrInvalid says that an option's value can't work; the message names the value and the rule.
	ErrInvalid = session.ErrConfig
	// ErrTooLarge says that the request would be longer than the ensemble takes
	// (WithJuteMaxBuffer), or that the list of the lock's directory is longer than 32 MB.
	ErrTooLarge = session.ErrTooLarge
	// ErrSessionFull says that the client's holds and waits fill its session: open another Client.
	// Their znodes' paths may take 512 KB, some 6,000 locks, or half of WithJuteMaxBuffer if that
	// is less.
	ErrSessionFull = session.ErrSessionFull
	// ErrUnknownOutcome matches the error of a call whose write may have been carried out: of
	// Hold.Multi, Proclaim, Resize, admin.Evict, a Job and session.Session.
	ErrUnknownOutcome = session.ErrUnknownOutcome
)

type closedError struct{}

func (closedError) Error() string { return "zklock: client closed" }
func (closedError) Unwrap() error { return ErrClosed }

// notRunError is why Do's function was not called.
type notRunError struct{ error }

func (e notRunError) Unwrap() error        { return e.error }
func (e notRunError) Is(target error) bool { return target == ErrNotRun }

// Error is the failure of a call.
type Error struct {
	Op   string // as "lock" or "multi"
	Path string // of a MultiLock all paths, with commas; "" when the call is not about a lock
	Err  error
}

func (e *Error) Error() string {
	return "zklock: " + strings.TrimSuffix(e.Op+" "+text.Foreign(e.Path), " ") + ": " + bare(e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

func failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{op, path, err}
}

// bare returns err's text without the names of this module's packages: Error has one in front.
func bare(err error) string {
	msg := failure.Text(err)
	for _, name := range []string{"zklock: ", "queue: ", "session: "} {
		msg = strings.TrimPrefix(msg, name)
		for _, before := range []string{": ", "(", "; ", "while "} {
			msg = strings.ReplaceAll(msg, before+name, before)
		}
	}
	return msg
}

// BusyError is ErrBusy with who is in the way.
type BusyError struct {
	// who is first in line: "owner (host:pid)", another library's text, or its znode's name
	Owner string
	Node  string // the first one's znode; "" when it has none yet
	Ahead int    // how many are in the way, the first one among them
	why   string
}

func (e *BusyError) Error() string        { return ErrBusy.Error() + ": " + e.why }
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

func busy(line queue.Line, why string) error {
	return &BusyError{cmp.Or(line.Owner, path.Base(line.Node)), line.Node, line.Ahead, why}
}

// hide returns err so that it does not match hidden any more: a nested call's error is not the
// outer call's.
func hide(err error, hidden ...error) error {
	if failure.IsOne(err, hidden...) {
		return &hidingError{err, hidden}
	}
	return err
}

type hidingError struct {
	err    error
	hidden []error
}

func (e *hidingError) Error() string { return e.err.Error() }
func (e *hidingError) Is(target error) bool {
	return !slices.Contains(e.hidden, target) && errors.Is(e.err, target)
}
func (e *hidingError) As(target any) bool { return errors.As(e.err, target) }
