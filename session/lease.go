package session

import "time"

// The lease clock: until when can the ensemble certainly not have ended the session?
//
// The leader ends a session when it has heard nothing of it for the negotiated timeout T. So a reply to a request that
// was sent at s seems to prove that the session lives until s + T. That is right only if the reply came from the
// leader. A follower answers pings and reads by itself and tells the leader which sessions it heard of when the leader
// asks, about every half tick; a follower that is cut off goes on answering for some ticks while the leader counts.
//
// So an acknowledgement counts in two steps:
//
//	acked      s + T of the latest acknowledged request: what a client believes that has nothing at stake
//	confirmed  s + T of the latest request whose reply arrived at a ≤ s' − slack, for some later write that was sent
//	           at s' and has been acknowledged
//
// Safety: the report of the follower that names our session left it at most one tick after a (slack ≥ one tick), on
// the same ordered stream that carried the write to the leader. As that was answered, the report had arrived before; so
// the leader counts from an instant after s. It has to be a write: a leader that was cut off from the others answers a
// sync alone, for syncLimit ticks, when they may have chosen another one that counts from its own beginning. A write is
// acknowledged by a majority, so no other leader began before it, and one that begins later gives every session its
// whole timeout again.
//
// A new session is made by a write, so its handshake confirms at once. A re-attached one is validated by the leader
// that the server has, which the first write on that connection confirms, and without slack: a server that changes
// its leader closes its connections.
//
// Two allowances make instants of ours comparable with the leader's: drift, for clocks that run at different speeds,
// and lead, for the time that our own goroutines need to hear of the end.
//
// Source: measured on a three-node ensemble, where a lease of the first kind outlived the session by 4.0 s.
type lease struct {
	timeout time.Duration // negotiated
	slack   time.Duration // at least one server tick

	acked     time.Time
	confirmed time.Time
	marks     []mark // acknowledgements not yet confirmed, oldest first, at most maxMarks
}

// mark is a span of acknowledgements: the last one's sending and arrival, and the first one's arrival.
type mark struct{ sent, first, at time.Time }

// maxMarks bounds the memory of a lease. Marks that lie closer than slack/8 are merged, so that these span four slacks
// and more: there is always one old enough to be confirmed.
const maxMarks = 32

// driftPart and leadPart: a fiftieth of the timeout for clock drift (quartz is a thousand times better, a machine
// under a bad time daemon is not), another twenty-fifth for our own scheduling: where programs fight for processors a
// goroutine runs hundreds of milliseconds late.
const (
	driftPart = 50
	leadPart  = 25
)

// begin starts the lease at the handshake of a new session, or goes on with it at that of a re-attached one. at is when
// the answer arrived.
func (l *lease) begin(sent, at time.Time, timeout, tick time.Duration, fresh bool) {
	// A server's least session timeout is two ticks, so a shorter timeout proves a shorter tick than we were told.
	l.slack = min(tick, timeout/2)
	end := sent.Add(timeout)
	shorter := timeout < l.timeout // granted by another server: the leader counts anew, and less
	l.timeout = timeout
	if shorter || end.After(l.acked) {
		l.acked = end
	}
	l.marks = l.marks[:0] // acknowledged by another server, whose reports nobody will confirm
	switch at = at.Add(-l.slack); {
	case fresh:
		l.confirmed = end
	case shorter && end.Before(l.confirmed):
		l.confirmed = end
		fallthrough
	default:
		l.marks = append(l.marks, mark{sent, at, at})
	}
}

// ack counts the reply, arrived at at, to a request sent at sent; leader says that it was a write, which a majority
// has.
func (l *lease) ack(sent, at time.Time, leader bool) {
	if end := sent.Add(l.timeout); end.After(l.acked) {
		l.acked = end
	}
	if leader {
		n := 0
		for n < len(l.marks) && !l.marks[n].at.Add(l.slack).After(sent) {
			n++
		}
		if n > 0 {
			if end := l.marks[n-1].sent.Add(l.timeout); end.After(l.confirmed) {
				l.confirmed = end
			}
			l.marks = append(l.marks[:0], l.marks[n:]...)
		}
	}
	// Merging widens a mark only towards a later arrival, which delays its confirmation and never hastens it.
	if n := len(l.marks); n > 0 && at.Sub(l.marks[n-1].first) < l.slack/8 {
		l.marks[n-1].sent, l.marks[n-1].at = sent, at
		return
	}
	if len(l.marks) == maxMarks { // nothing went through the leader for long: only the latest marks are worth confirming
		l.marks = append(l.marks[:0], l.marks[1:]...)
	}
	l.marks = append(l.marks, mark{sent, at, at})
}

// hear counts bytes of a long reply that arrived at at. They prove nothing, and so confirm nothing; but as long as they come,
// whoever has nothing at stake goes on.
func (l *lease) hear(at time.Time) {
	if end := at.Add(l.timeout); end.After(l.acked) {
		l.acked = end
	}
}

// safeUntil is the instant before which the ensemble can't have ended the session, drift allowed for.
func (l *lease) safeUntil() time.Time { return l.confirmed.Add(-l.timeout / driftPart) }

// end is when the session has to be given up here: for one that holds something, early enough that everybody has
// heard of it before safeUntil; for one that holds nothing, when the plain acknowledgements run out.
func (l *lease) end(held bool) time.Time {
	if held {
		return l.safeUntil().Add(-l.timeout / leadPart)
	}
	return l.acked.Add(-l.timeout / driftPart)
}
