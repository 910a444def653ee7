package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// Queue is a directory, and what a contender wants in it.
type Queue struct {
	Dir     string      // the directory: the lock's path
	Kind    recipe.Kind // what is wanted
	Permits int         // for the kind Permits: how many
	Size    *Size       // for the kind Permits: the semaphore's size
	Held    int         // permits of that semaphore that the caller holds, and keeps until it has these
	Ranked  bool        // of an election: see ErrOutranked
	Rank    int         // of its candidate
	Since   int         // of one that has stepped aside: its recipe.Name.Arrival

	ACL       []zk.ACL // of the directory, of missing parents, and of the contenders' znodes
	Container bool     // make the directory a container, which the ensemble removes when it is empty
	Data      []byte   // of the contender's znode: who we are

	// Describe makes a name for messages from a contender's data; "" if they have none.
	Describe func(data []byte) string
	Caller   Caller       // who wants it
	Log      *slog.Logger // gets a warning of a change that the ensemble did not report to a waiter, and of a semaphore's other size
}

// makeDir makes the directory, with the size of a semaphore in its data, and its missing parents.
func (q *Queue) makeDir(ctx context.Context, s *session.Session, size int) error {
	r := q.request(size)
	return q.refused(s.CreateAllGrouped(ctx, q.Dir, r.Data, r.Mode, q.ACL))
}

// request returns the create of the directory, for a transaction.
func (q *Queue) request(size int) session.OpCreate {
	mode := session.Persistent
	if q.Container {
		mode = session.Container
	}
	return session.OpCreate{Path: q.Dir, Data: dirData{Size: size}.encode(), ACL: q.ACL, Mode: mode}
}

// refused explains the error for a directory that can't have children, since it is ephemeral: a contender, for instance.
func (q *Queue) refused(err error) error {
	if errors.Is(err, zk.ErrNoChildrenForEphemerals) {
		return fmt.Errorf("%w: %s, or a parent of it, is ephemeral and can't be a lock's directory: %w", ErrConflict, q.Dir, err)
	}
	return err
}

// Caller is told of a call's progress.
type Caller interface {
	Queued(Line)         // the place in line: once it is taken, and when it or the holder is seen to change
	Retried(cause error) // a step has failed, and is made again
}

var (
	// ErrGone says that another client has deleted the ticket's znode, while its session lives.
	ErrGone = errors.New("queue: own znode was deleted")

	// ErrTaken matches the error of a Leave that found a znode deleted by another client, and may not have deleted the rest.
	ErrTaken = errors.New("queue: one of several own znodes was deleted")

	// ErrBusy matches the error of Try when another contender is in the way.
	ErrBusy = errors.New("queue: busy")

	// ErrOutranked matches the error of a Wait that has become the first in line while one that goes before it waits: then leave,
	// and enter again with this one's Ticket.Arrival.
	ErrOutranked = errors.New("queue: one of higher rank waits")

	// ErrDeadlock matches the error for a wait that only the caller itself could end.
	ErrDeadlock = errors.New("queue: deadlock: the caller holds this lock already")

	// ErrNeighbour also matches an error that another client's contender causes by its name or ACL, until that has gone.
	ErrNeighbour = errors.New("queue: a neighbour's znode")

	// ErrConflict matches the error for a directory that can't have children, is another kind of lock's, or has foreign
	// data.
	ErrConflict = errors.New("queue: path is in use by something else")
)

type neighbourError struct{ error }

func (e neighbourError) Unwrap() error        { return e.error }
func (e neighbourError) Is(target error) bool { return target == ErrNeighbour }

// Busy returns an error that matches ErrBusy and LineError.
func Busy(at Line) error { return &busyError{at} }

// busyError is ErrBusy with the place in line.
type busyError struct{ line Line }

func (e *busyError) Error() string {
	if e.line.Ahead < 2 {
		return "held by " + e.line.who()
	}
	return fmt.Sprintf("held by %s, %d waiting", e.line.who(), e.line.Ahead-1)
}

func (e *busyError) Unwrap() error        { return LineError{e.line} }
func (e *busyError) Is(target error) bool { return target == ErrBusy }

// Line is a contender's place in line.
type Line struct {
	Ahead  int    // contenders in its way
	Holder string // the first of them: its znode's path
	Who    string // who that is, by its znode's data; "" before they were read
}

// String reads "3rd in line behind host:pid".
func (l Line) String() string {
	if l.Ahead == 0 {
		return "about to enter the line"
	}
	return fmt.Sprintf("%s in line behind %s", text.Ordinal(l.Ahead+1), l.who())
}

func (l Line) who() string {
	if l.Who == "" {
		return text.Foreign(path.Base(l.Holder))
	}
	return text.Foreign(l.Who)
}

// LineError is the place in line at which a Wait was ended by its context, or that a Try found: errors.As finds it in the
// error.
type LineError struct{ Line }

func (e LineError) Error() string { return "waiting " + e.Line.String() }

// asGone makes ErrGone of the error for a missing directory, or a missing znode of ours.
func asGone(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return ErrGone
	}
	return err
}
