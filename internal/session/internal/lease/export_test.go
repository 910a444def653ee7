package lease

import "time"

// Lease is the lease clock.
type Lease struct{ l lease }

// MaxMarks bounds its memory.
const MaxMarks = maxMarks

func (l *Lease) Begin(sent time.Time, timeout, tick time.Duration) {
	l.l.tick = tick
	l.l.begin(sent, sent, timeout, true)
	l.l.ack(sent, sent, true) // the write that made it
}

// Open is the handshake of a new session.
func (l *Lease) Open(sent, at time.Time, timeout, tick time.Duration) {
	l.l.tick = tick
	l.l.begin(sent, at, timeout, true)
}

// Reattach is the request of a handshake that re-attaches the session; Unanswered says that it gets no answer.
func (l *Lease) Reattach(sent time.Time) { l.l.reattach(sent) }
func (l *Lease) Unanswered(closed bool)  { l.l.unanswered(closed) }

// Resume is the answer to a handshake that re-attached the session.
func (l *Lease) Resume(sent, at time.Time, timeout, tick time.Duration) {
	l.l.tick = tick
	l.l.begin(sent, at, timeout, false)
}
func (l *Lease) Ack(sent, at time.Time, leader bool) { l.l.ack(sent, at, leader) }
func (l *Lease) SafeUntil() time.Time                { return l.l.safeUntil() }
func (l *Lease) End(retained bool) time.Time         { return l.l.end(retained) }
func (l *Lease) Acked() time.Time                    { return l.l.acked }
func (l *Lease) Confirmed() time.Time                { return l.l.confirmed }
func (l *Lease) Marks() int                          { return len(l.l.marks) }
