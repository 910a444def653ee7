package session

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// changes tells Config.OnState and Config.Logger of each change of a session's State, in order. The
// session waits for neither, and calls neither under a mutex: one goroutine, run, does.
type changes struct {
	queue   chan Change // nil: nobody is to be told
	onState func(Change)
	logger  *slog.Logger
	asked   time.Duration // Config.Timeout
}

// maxChanges bounds the changes that wait for OnState or Logger to return; the oldest are dropped.
const maxChanges = 64

func newChanges(c *config) *changes {
	cs := &changes{onState: c.OnState, logger: c.Logger, asked: c.Timeout}
	if c.OnState != nil || c.Logger != nil {
		cs.queue = make(chan Change, maxChanges)
	}
	return cs
}

// wanted reports whether there is anybody to be told, by run.
func (cs *changes) wanted() bool { return cs.queue != nil }

// add has run tell of c. Its calls come one at a time, and none follows that for Over.
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
	cs.queue <- c // there is room: only add adds
	if c.State == Over {
		close(cs.queue)
	}
}

// run tells of each change, until it has told of Over.
func (cs *changes) run() {
	for c := range cs.queue {
		if cs.logger != nil {
			cs.log(c)
		}
		if cs.onState != nil {
			cs.onState(c)
		}
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
		cs.logger.Debug("zklock: session connected", "session", id, "server", c.Addr, "timeout", c.Timeout, "asked", cs.asked)
	case Disconnected: // the session is in doubt, and with it every hold
		cs.logger.Warn("zklock: session disconnected, and connects again", "session", id, "server", c.Addr, "cause", c.Err)
	case Over:
		if errors.Is(c.Err, ErrClosed) {
			cs.logger.Debug("zklock: session closed", "session", id)
			return
		}
		cs.logger.Warn("zklock: session lost, and its znodes with it", "session", id, "cause", c.Err)
	}
}
