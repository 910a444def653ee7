package zktest

import (
	"context"
	"slices"

	"github.com/zklock/locker/zktest/fault"
	"github.com/zklock/locker/zktest/internal/rule"
)

// Faults are looked up when a request arrives and when a notification leaves; a reply gets the
// faults of its request, so that one count is one request. Faults of whole connections are looked
// up elsewhere: a Freeze without Op and Path (see standing) acts when injected and when a
// connection begins, Refuse only when one begins.

// Injection is a fault.Fault in effect in a server. Its methods may be called at any time from any
// goroutine.
type Injection struct {
	s *Server
	f injected

	// guarded by s.mu
	seen     int            // requests selected, struck or not
	hits     int            // requests struck
	over     bool           // removed: it strikes nothing more
	released chan struct{}  // closed by Release and Remove: what Hold and HoldReply wait for
	first    chan struct{}  // closed by the first hit
	freezes  map[*conn]bool // the connections whose gates this fault has shut; each is opened once
}

// Inject puts a fault into effect until its count is used up, Remove, or the end of the server.
// Faults that select the same request all strike it, in the order of their injection. It panics if
// a path pattern is malformed.
func (s *Server) Inject(f fault.Fault) *Injection { return s.inject(f, nil) }

// Inject is Server.Inject for the clients that are connected to this member.
func (m *Member) Inject(f fault.Fault) *Injection { return m.s.inject(f, m) }

// inject is Server.Inject for the clients of one member, or of all if at is nil.
func (s *Server) inject(given fault.Fault, at *Member) *Injection {
	r := rule.Of(given)
	for _, p := range r.Paths {
		checkPattern(p)
	}
	in := &Injection{
		s:        s,
		f:        injected{r, effectOf(r), at},
		released: make(chan struct{}),
		first:    make(chan struct{}),
		freezes:  map[*conn]bool{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, in)
	if in.f.standing() {
		in.freezeAllLocked()
	}
	return in
}

// freezeAllLocked freezes the open connections that the fault selects.
func (in *Injection) freezeAllLocked() {
	for _, m := range in.s.members {
		for _, c := range inOrder(m.conns) {
			if in.f.reaches(c) {
				in.freezeLocked(c)
			}
		}
	}
}

// Remove ends the fault: held requests and frozen connections continue. Removing twice is harmless.
func (in *Injection) Remove() {
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	in.removeLocked()
}

// removeLocked is Remove for a caller that holds the server's lock.
func (in *Injection) removeLocked() {
	if in.over {
		return
	}
	in.over = true
	close(in.released)
	for _, c := range inOrder(in.freezes) {
		in.thawLocked(c)
	}
	in.s.faults = slices.DeleteFunc(in.s.faults, func(o *Injection) bool { return o == in })
}

// Release releases what a Hold or HoldReply holds now. The fault still applies to later requests,
// as its count allows.
func (in *Injection) Release() {
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	if !in.over {
		close(in.released)
		in.released = make(chan struct{})
	}
}

// Hits returns how often the fault has struck. A Freeze without Op and Path counts the connections
// it has frozen.
func (in *Injection) Hits() int {
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	return in.hits
}

// Hit returns a channel that is closed when the fault strikes for the first time: before the
// request is carried out. (To see the effect of a request whose reply HoldReply stops, use
// Server.Await.)
func (in *Injection) Hit() <-chan struct{} { return in.first }

// Wait returns nil when the fault has struck n times, or ctx's error if ctx ends first.
func (in *Injection) Wait(ctx context.Context, n int) error {
	return in.s.Await(ctx, func() bool { return in.Hits() >= n })
}

// strikeLocked counts one more request, or connection, that the fault selects. It reports whether
// the fault strikes that one, which its Skip and Times decide.
func (in *Injection) strikeLocked() bool {
	in.seen++
	if in.over || in.seen <= in.f.Skip || in.f.Times > 0 && in.hits >= in.f.Times {
		return false
	}
	in.hits++
	if in.hits == 1 {
		close(in.first)
	}
	in.s.changedLocked()
	return true
}

// matchLocked returns the faults that strike a request, and counts the request for each fault that
// selects it.
func (s *Server) matchLocked(c *conn, op fault.Op, paths []string) []*Injection {
	var struck []*Injection
	for _, in := range s.faults {
		if !in.f.refuse && !in.f.standing() && in.f.selects(c, op, paths) && in.strikeLocked() {
			struck = append(struck, in)
		}
	}
	return struck
}

// refuseLocked reports whether a fault refuses a new connection. Each fault counts the connection,
// also one that another fault has refused already.
func (s *Server) refuseLocked(m *Member) bool {
	refused := false
	for _, in := range s.faults {
		if in.f.refuse && (in.f.member == nil || in.f.member == m) && in.strikeLocked() {
			refused = true
		}
	}
	return refused
}

// freezeLocked shuts the gates of a connection, once.
func (in *Injection) freezeLocked(c *conn) {
	if in.over || in.freezes[c] {
		return
	}
	// A Freeze with Op or Path was already counted in matchLocked.
	if in.f.standing() && !in.strikeLocked() {
		return
	}
	in.freezes[c] = true
	if in.f.effect.freeze&requests != 0 {
		c.in.close()
	}
	if in.f.effect.freeze&replies != 0 {
		c.outGate.close()
	}
}

// thawLocked opens the gates that freezeLocked has shut, unless another fault keeps them shut.
func (in *Injection) thawLocked(c *conn) {
	if !in.freezes[c] {
		return
	}
	delete(in.freezes, c)
	if in.f.effect.freeze&requests != 0 {
		c.in.open()
	}
	if in.f.effect.freeze&replies != 0 {
		c.outGate.open()
	}
}

// freezeNewLocked applies the standing freezes to a connection whose session is unknown or has just
// become known.
func (s *Server) freezeNewLocked(c *conn) {
	for _, in := range s.faults {
		if in.f.standing() && in.f.reaches(c) {
			in.freezeLocked(c)
		}
	}
}

// forgetFrozenLocked makes the faults forget a connection that is killed. Its gates stay as they
// are.
func (s *Server) forgetFrozenLocked(c *conn) {
	for _, in := range s.faults {
		delete(in.freezes, c)
	}
}
