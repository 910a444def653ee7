package session

import (
	"fmt"
)

// These are all moves from one state to another. Config.OnState is called for each.
//
//	Connecting, Disconnected  → Connected      connectedLocked, by Up: the conn carries the requests of all calls
//	Connected                 → Disconnected   disconnectedLocked, by Down: the conn has failed; by Up, if Down has not run yet
//	any                       → Over           end: for the first cause that comes, in the context and without a mutex

func (s *Session) connectedLocked(c *connection) {
	s.state, s.conn, c.upAt = Connected, c, s.clock.Stamp()
	close(s.ready)
	s.noteLocked(Change{State: Connected, ID: s.id, Addr: c.Server, Timeout: s.granted})
}

func (s *Session) disconnectedLocked(err error) {
	server := s.conn.Server
	s.state, s.conn, s.ready = Disconnected, nil, make(chan struct{})
	if s.Err() == nil {
		s.noteLocked(Change{State: Disconnected, ID: s.id, Addr: server, Err: err})
	}
}

// State returns Over as soon as Err is not nil.
func (s *Session) State() State {
	if s.Err() != nil {
		return Over
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// maxNotes bounds the changes that wait for OnState or Logger to return; the oldest are dropped.
const maxNotes = 64

// noteLocked passes c to tell, if there is an OnState or a Logger: the session does not wait for them, nor call them under a
// mutex. Nothing may follow Over.
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
	s.notes <- c // there is room: only noteLocked adds
	if c.State == Over {
		close(s.notes)
	}
}

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
	case Connected: // both timeouts, for an operator who wonders why a crash is noticed later than he configured
		c.Logger.Info("session connected", "session", id, "server", ch.Addr, "timeout", ch.Timeout, "asked", c.Timeout)
	case Disconnected: // the session is in doubt, and with it every hold
		c.Logger.Warn("session disconnected", "session", id, "server", ch.Addr, "cause", ch.Err)
	case Over:
		c.Logger.Info("session over", "session", id, "cause", ch.Err)
	}
}
