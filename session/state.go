package session

import (
	"fmt"
	"time"
)

// State is the state of a session.
type State int

const (
	// Connecting: no server has answered yet; there is no session.
	Connecting State = iota
	// Connected: requests travel.
	Connected
	// Disconnected: no connection; the session may go on, or have ended. Requests wait for the next connection.
	Disconnected
	// Over: the session has ended for good; Err says why.
	Over
)

// A session moves from one state to the other here and nowhere else. Config.OnState is called for each move.
//
//	Connecting, Disconnected  → Connected      connectedLocked, by connUp: the conn carries the requests of all calls
//	Connected                 → Disconnected   disconnectedLocked, by connDown: the conn has failed
//	any                       → Over           end: for the first cause that comes; the context knows, and no mutex is needed

// String returns the state's name in lower case.
func (s State) String() string {
	names := [...]string{Connecting: "connecting", Connected: "connected", Disconnected: "disconnected", Over: "over"}
	if s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// connectedLocked has requests travel on c, which is open.
func (s *Session) connectedLocked(c *conn) {
	s.state, s.conn, s.connectedAt = Connected, c, s.clock.stamp()
	close(s.ready)
	s.noteLocked(Change{State: Connected, ID: s.id, Addr: c.server, Timeout: s.granted})
}

// disconnectedLocked has requests wait for the next conn; the present one has failed for err.
func (s *Session) disconnectedLocked(err error) {
	server := s.conn.server
	s.state, s.conn, s.ready = Disconnected, nil, make(chan struct{})
	if s.Err() == nil {
		s.noteLocked(Change{State: Disconnected, ID: s.id, Addr: server, Err: err})
	}
}

// end ends the session, for the first cause that comes. Its context ends first of all, without a mutex; everything else
// follows in a goroutine of its own, which Close waits for.
func (s *Session) end(cause error) {
	s.cut(cause)
	s.ending.Do(func() { go s.shutdown() })
}

// State returns the session's state: Over as soon as Err is not nil.
func (s *Session) State() State {
	if s.Err() != nil {
		return Over
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Change is a change of a session's state.
type Change struct {
	State   State
	ID      int64         // of the session; 0 before the first handshake
	Addr    string        // of the server, for Connected and Disconnected
	Timeout time.Duration // that the ensemble granted, for Connected
	Err     error         // why, for Disconnected and Over
}

// maxNotes bounds what waits for an OnState, or a Logger, that does not return: the oldest changes are dropped.
const maxNotes = 64

// noteLocked has c told, if there is an OnState or a Logger: by a goroutine of its own, so that nothing in the session waits
// for them, and they are not called under a mutex. Nothing may follow Over.
func (s *Session) noteLocked(c Change) {
	if s.notes == nil {
		return
	}
	if len(s.notes) == maxNotes {
		select {
		case <-s.notes:
		default: // tell has just taken it
		}
	}
	s.notes <- c // there is room: no other call adds meanwhile
	if c.State == Over {
		close(s.notes)
	}
}

// tell logs each change and passes it on, until the session is over.
func (s *Session) tell() {
	for c := range s.notes {
		s.cfg.log(c)
		if s.cfg.OnState != nil {
			s.cfg.OnState(c)
		}
	}
}

func (c *config) log(ch Change) {
	if c.Logger == nil {
		return
	}
	id := fmt.Sprintf("%#x", uint64(ch.ID)) // as the ensemble's own logs have it
	if ch.ID == 0 {
		id = "none yet"
	}
	switch ch.State {
	case Connected: // with both timeouts: an operator wonders why a crash takes longer to be noticed than he configured
		c.Logger.Info("session connected", "session", id, "server", ch.Addr, "timeout", ch.Timeout, "asked", c.Timeout)
	case Disconnected: // in doubt, and with it every hold
		c.Logger.Warn("session disconnected", "session", id, "server", ch.Addr, "cause", ch.Err)
	case Over:
		c.Logger.Info("session over", "session", id, "cause", ch.Err)
	}
}
