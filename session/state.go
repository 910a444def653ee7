package session

import "fmt"

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
	s.notes.addLocked(Change{State: Connected, ID: s.id, Addr: c.server, Timeout: s.granted})
}

// disconnectedLocked has requests wait for the next conn; the present one has failed for err.
func (s *Session) disconnectedLocked(err error) {
	server := s.conn.server
	s.state, s.conn, s.ready = Disconnected, nil, make(chan struct{})
	if s.Err() == nil {
		s.notes.addLocked(Change{State: Disconnected, ID: s.id, Addr: server, Err: err})
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
