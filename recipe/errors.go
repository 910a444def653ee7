package recipe

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/zklock/locker/internal/text"
)

var (
	// ErrGone says that the ticket's znode is not there any more, though its session lives: another client deleted it, or
	// the whole directory.
	ErrGone = errors.New("recipe: own znode was deleted")

	// ErrBusy matches the error of Try when another contender is in the way.
	ErrBusy = errors.New("recipe: busy")

	// ErrDeadlock matches the error for a wait that only the caller itself could end.
	ErrDeadlock = errors.New("recipe: deadlock: the caller holds this lock already")

	// ErrNeighbour also matches an error caused by another client's contender, through its name or ACL. It clears when that
	// contender is gone.
	ErrNeighbour = errors.New("recipe: a neighbour's znode")

	// ErrConflict matches the error for a directory that belongs to another kind of lock, can't be one, or has data
	// that are not this library's where ours would be.
	ErrConflict = errors.New("recipe: path is in use by something else")
)

// neighbourError is an error that is ErrNeighbour too.
type neighbourError struct{ error }

func (e neighbourError) Unwrap() error        { return e.error }
func (e neighbourError) Is(target error) bool { return target == ErrNeighbour }

// busyError is ErrBusy with the place in line and the holder.
type busyError struct{ line Line }

// Error reads "held by host:pid, 3 waiting".
func (e *busyError) Error() string {
	if e.line.Ahead < 2 {
		return "held by " + e.line.who()
	}
	return fmt.Sprintf("held by %s, %d waiting", e.line.who(), e.line.Ahead-1)
}

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

// LineError is a Line as what was being waited for: found by errors.As in the error of a Wait whose context has ended.
type LineError struct{ Line }

// lostHolder describes a lost holder whose lock delay is being waited out.
func lostHolder(name string) Line {
	return Line{Ahead: 1, Holder: name, Who: name + ", which was lost (lock delay)"}
}

// Error reads "waiting 3rd in line behind host:pid".
func (e LineError) Error() string { return "waiting " + e.Line.String() }

// isOne reports whether err matches one of the others.
func isOne(err error, others ...error) bool {
	return slices.ContainsFunc(others, func(other error) bool { return errors.Is(err, other) })
}
