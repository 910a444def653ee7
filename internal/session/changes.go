package session

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/zklock/locker/internal/session/failure"
)

// changes tells Config.OnState and Config.Logger of each change of a session's State, in order. The
// session waits for neither, and calls neither under a mutex: one goroutine, run, does. While no
// server can be reached, run warns of that, too.
type changes struct {
	queue   chan Change // nil if nobody is to be told
	onState func(Change)
	logger  *slog.Logger
	asked   time.Duration // Config.Timeout
	servers string        // of the connect string
	report  func() error  // returns why there is no connection

	// Of run alone.
	unconnected time.Time // since when there is no connection; zero while there is one
	// a line at Warn has said that there is none, or that the last session was lost
	warned  bool
	warning *time.Timer // fires when the next warning is due
}

// Times without a connection after which run warns that no server is reachable: first, and then
// again and again.
const (
	firstUnreachable = 5 * time.Second
	nextUnreachable  = time.Minute
)

// maxChanges bounds the changes that wait for OnState or Logger to return; the oldest are dropped.
const maxChanges = 64

func newChanges(c *config) *changes {
	cs := &changes{onState: c.OnState, logger: c.Logger, asked: c.Timeout,
		servers: strings.Join(c.servers, ","),
		warned:  c.Replaces}
	if c.OnState != nil || c.Logger != nil {
		cs.queue = make(chan Change, maxChanges)
	}
	return cs
}

// wanted reports whether there is anybody to be told, by run.
func (cs *changes) wanted() bool { return cs.queue != nil }

// add queues c, for run to tell of. The calls of add come one at a time, and the one for Over is
// the last.
func (cs *changes) add(c Change) {
	if cs.queue == nil {
		return
	}
	if len(cs.queue) == maxChanges {
		select {
		case <-cs.queue:
		default: // run has just taken it
		}
	}
	cs.queue <- c // there is room, since only add adds
	if c.State == Over {
		close(cs.queue)
	}
}

// run tells of each change, until it has told of Over.
func (cs *changes) run() {
	cs.unconnected = time.Now()
	cs.warning = time.NewTimer(firstUnreachable)
	defer cs.warning.Stop()
	for {
		select {
		case c, more := <-cs.queue:
			if !more {
				return
			}
			cs.tell(c)
		case <-cs.warning.C:
			cs.warnUnreachable()
			cs.warning.Reset(nextUnreachable)
		}
	}
}

func (cs *changes) tell(c Change) {
	if cs.logger != nil {
		cs.log(c)
	}
	switch c.State {
	case Connected:
		cs.unconnected, cs.warned = time.Time{}, false
		cs.warning.Stop()
	case Disconnected:
		cs.unconnected = time.Now()
		cs.warning.Reset(firstUnreachable)
	case Over:
		cs.warning.Stop()
	}
	if cs.onState != nil {
		cs.onState(c)
	}
}

func (cs *changes) log(c Change) {
	id := fmt.Sprintf("%#x", uint64(c.ID)) // as the ensemble's own logs have it
	if c.ID == 0 {
		id = "none yet"
	}
	switch c.State {
	case Connected:
		// Both timeouts, for an operator who wonders why a crash is noticed later than configured.
		about := []any{"session", id, "server", c.Addr, "timeout", c.Timeout, "asked", cs.asked}
		if !cs.warned {
			cs.logger.Debug("zklock: session connected", about...)
			return
		}
		about = append(about, "after", cs.withoutConnection())
		cs.logger.Info("zklock: session connected", about...)
	case Disconnected: // the session is in doubt, and with it every hold
		cs.warned = true
		cs.logger.Warn("zklock: session disconnected; reconnecting", "session", id, "server",
			c.Addr, "cause", c.Err)
	case Over:
		if errors.Is(c.Err, ErrClosed) {
			cs.logger.Debug("zklock: session closed", "session", id)
			return
		}
		cs.logger.Warn(lostMessage(c.Err), "session", id, "cause", c.Err)
	}
}

// lostMessage says what the loss of a session means.
func lostMessage(cause error) string {
	switch {
	case errors.Is(cause, failure.ErrExpired):
		return "zklock: session lost: the ensemble has ended it, and has deleted its znodes"
	case errors.Is(cause, failure.ErrAuth):
		return "zklock: session lost: no lock can be taken until the ensemble accepts the credentials"
	}
	return "zklock: session lost: the ensemble may have ended it, or will"
}

// warnUnreachable warns that there is no connection. Without one, each Lock waits and says nothing.
func (cs *changes) warnUnreachable() {
	if cs.logger == nil {
		return
	}
	cs.warned = true
	cs.logger.Warn("zklock: no server reachable, so no lock can be taken; connecting goes on",
		"servers", cs.servers, "for", cs.withoutConnection(), "cause", cs.report())
}

func (cs *changes) withoutConnection() time.Duration {
	return time.Since(cs.unconnected).Round(time.Millisecond)
}
