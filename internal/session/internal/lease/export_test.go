package lease

import "time"

// Lease is the lease clock.
type Lease struct{ l lease }

// MaxSpans bounds its memory.
const MaxSpans = maxSpans

func (l *Lease) Begin(sent time.Time, timeout, tick time.Duration) {
	l.l.tick = tick
	l.l.begin(sent, sent, timeout)
	l.l.acknowledge(sent, sent, true) // the write that made it
}

// Open is the handshake of a new session.
func (l *Lease) Open(sent, at time.Time, timeout, tick time.Duration) {
	l.l.tick = tick
	l.l.begin(sent, at, timeout)
}

// Reattach is the request of a handshake that re-attaches the session; Unanswered says that it gets
// no answer.
func (l *Lease) Reattach(sent time.Time) { l.l.reattach(sent) }
func (l *Lease) Unanswered(closed bool)  { l.l.reattachFailed(closed) }

// Resume is the answer to a handshake that re-attached the session.
func (l *Lease) Resume(sent, at time.Time, timeout, tick time.Duration) {
	l.l.tick = tick
	l.l.resume(sent, at, timeout)
}
func (l *Lease) Ack(sent, at time.Time, leader bool) { l.l.acknowledge(sent, at, leader) }
func (l *Lease) SafeUntil() time.Time                { return l.l.safeUntil() }
func (l *Lease) End(retained bool) time.Time         { return l.l.end(retained) }
func (l *Lease) AnsweredUntil() time.Time            { return l.l.answeredUntil }
func (l *Lease) ConfirmedUntil() time.Time           { return l.l.confirmedUntil }
func (l *Lease) Spans() int                          { return len(l.l.unconfirmed) }
