package lease

import (
	"time"

	"github.com/zklock/locker/internal/session/internal/clock"
)

// # The lease clock
//
// Until when can the ensemble certainly not have ended the session?
//
// The leader ends a session when it has heard nothing of it for the negotiated timeout T. So a
// reply to a request sent at s seems to prove that the session lives until s + T. But that holds
// only if the leader answered. A follower answers pings and reads by itself. It tells the leader
// which sessions it heard of when the leader asks, about every half tick. A follower that is cut
// off goes on answering for some ticks while the leader counts.
//
// So an acknowledgement counts in two steps:
//
//	answeredUntil   s + T of the latest acknowledged request, sent at s. The client relies on it
//	                while the session is not retained.
//	confirmedUntil  s + T of the latest acknowledged request, sent at s, that a write has
//	                confirmed.
//
// A write that was sent at w, and has been acknowledged, confirms a request if
//
//   - the request was sent two ticks before w or earlier (requestToWrite), and
//   - its reply arrived one tick before w or earlier (replyToWrite).
//
// # Why that is safe
//
// The report that names our session left the server at most half a tick after the reply, and, from
// an observer behind another observer, half a tick later once more. It went on the same ordered
// stream that carried the write to the leader. So it arrived before the write, which was answered:
// the leader counts from an instant after s.
//
// It has to be a write. A leader that was cut off from the others answers a sync alone, for
// syncLimit ticks. Meanwhile the others may have chosen another leader, which counts from its own
// beginning. A write is acknowledged by a majority, so no other leader began before it, and one
// that begins later gives every session its whole timeout again. And the leader has to look at the
// session for the write, as it does for each operation of a multi. It may refuse the write because
// of the session inside a multi whose header says OK (see wire.Verdict).
//
// Why two ticks from the request and one from the reply: when replies are fast, two ticks are twice
// what the report needs, which covers a leader that asks late. Two ticks from a slow reply would
// leave no lease.
//
// # Handshakes
//
// A handshake counts as confirmed only when the first write on its connection has been answered.
// The handshake of a new session may have been seen by the connected server alone (local sessions).
// That of a re-attached one was validated by that server's leader, which may have been replaced.
// That first write may follow at once: the create that makes a session global begins the leader's
// count, a re-attachment was told to the leader itself, and a server that changes its leader closes
// its connections.
//
// A re-attachment can shorten the leader's count if the server has a lower maxSessionTimeout than
// the others; its answer says so. Until the answer arrives, the lease ends two ticks after the
// handshake was sent: no server grants less, unless its minSessionTimeout is set lower. A server
// that closes the connection instead is taken for one without a leader, which has not carried out
// the re-attachment. If it has, and the reply was lost with the connection, the lease is safe
// because all servers have the same limits (docs/maintainers/proof.md, A5).
//
// # Allowances
//
// Three allowances stand between the instant at which a holder's context ends and the leader's:
//
//   - for clocks of different speeds (clockDivisor);
//   - for the time that our own goroutines need to end the context (schedulingDivisor);
//   - for the work that was given the context, which has to stop (workDivisor).
//
// SafeUntil allows for clocks alone.
//
// # Assumptions
//
// Each is followed by the test that watches it, if there is one. "Model" is
// TestTheLeaseNeverOutlivesTheLeadersPatience, which draws runs that use the assumption to its
// limit.
//
//  1. The clocks of this machine and of the leader's differ in speed by at most two per cent. Ours
//     counts the time for which the machine stood still (see clock.Clock: a paused guest's may
//     not). Model.
//  2. Our process runs, or asks Alive when it runs again.
//     TestAliveReadsTheClockAndWaitsForNoTimer.
//  3. The tick, found out (see Session.findTick) or Config.TickTime, is not below the longest
//     tickTime of the ensemble's servers. A grant that contradicts it is refused:
//     TestAGrantThatNoLeaseCanBeHadWithIsRefusedWithTheRule.
//  4. A follower tells its leader of touched sessions twice a tick, on the ordered stream that
//     carries its writes. An observer may be behind another observer, and no further. Model; with a
//     follower that is cut off,
//     TestALeaseOfAFollowerThatLostItsLeaderEndsBeforeTheLeaderEndsTheSession.
//  5. A server that loses that stream closes its clients' connections, and has no second stream
//     beside the first. So the answers on one of our connections belong to one stream. A server
//     that is cut off, healed and cut off again within one of our round trips may lose its earlier
//     reports, but then no later write is answered on their connection. Model ("the follower starts
//     again"); on real servers no test cuts twice within a round trip.
//  6. A write is acknowledged by a majority, and a leader that begins later gives each session its
//     whole timeout again. tests/e2e, TestHoldIsNotProlongedByALeaderThatHasBeenReplaced.
//  7. The leader looks at the session before it carries out any operation of a multi, and says so
//     inside the reply when it refuses.
//     TestAHeartbeatThatSaysExpiredInsideEndsTheSessionAndConfirmsNothing.
//  8. The leader asks its followers every half tick. One that was stopped may answer our write
//     before it has asked again, and end the session by earlier reports. That takes a stop of
//     nearly the timeout, after which the session is due as it wakes. Model, with shorter stops;
//     tests/e2e/chaos stops leaders for 0.9 to 1.1 timeouts.
//  9. No server grants less than two ticks: that is what is left of a lease while a re-attachment
//     has no answer.
//     TestScenario59_ALeaseEndsBeforeTheShorterSessionOfAReattachmentWithoutAnAnswer.
//  10. A server that hung with our handshake unread does not carry it out after we have gone to
//     another server: with a lower limit of its own it would shorten the leader's count. No test.
//  11. The granted timeout is two ticks or more. Where minSessionTimeout was lowered, the tick that
//     is found out is too short (package doctor says so). If the tick was given, requestToWrite is
//     shorter than an observer behind an observer needs. No test.
//
// Source: measured on a three-node ensemble, where a lease by the latest reply (answeredUntil)
// outlived the session by 4.0 s.
type lease struct {
	timeout time.Duration // the least granted to this session
	tick    time.Duration // of the servers, or longer; 0 if it is not found out yet

	// The distances at which a write confirms a request: see "The lease clock". Neither is more
	// than half the timeout.
	replyToWrite   time.Duration // one tick: the least time from the reply to the write
	requestToWrite time.Duration // two ticks: the least time from the request to the write

	answeredUntil  time.Time
	confirmedUntil time.Time

	// unconfirmed are acknowledgements that no write has confirmed yet: at most maxSpans, in the
	// order of sending, and so of confirmableFrom.
	unconfirmed []span

	// When re-attachments without an answer were sent, or zero if there is none.
	pendingReattachSent time.Time // the one whose answer may still come
	// the first, since a handshake was last answered, whose answer will not come
	lostReattachSent time.Time
}

// span is one acknowledgement, or several in quick succession that are merged into one. They count
// as the latest of them: they extend the lease as far as that one, and no earlier write confirms
// them than one that confirms that one.
type span struct {
	sent            time.Time // when the latest request was sent
	firstArrived    time.Time // when the first reply arrived
	confirmableFrom time.Time // a write that was sent then or later confirms all
}

// maxSpans bounds a lease's memory. Acknowledgements closer than requestToWrite/mergeDivisor are
// one span, so maxSpans of them last for four times requestToWrite or more, and one is always old
// enough to be confirmed.
const (
	maxSpans     = 64
	mergeDivisor = 16
)

// Each allowance is the timeout divided by one of these.
const (
	// quartz is a thousand times better; a machine with a bad time daemon is not
	clockDivisor      = 50
	schedulingDivisor = 25 // on overloaded machines a goroutine runs hundreds of milliseconds late
	workDivisor       = 20 // enough to cancel a request and to skip the next write
)

// clockAllowance allows for clocks of different speeds over the time d.
func clockAllowance(d time.Duration) time.Duration { return d / clockDivisor }

// allowances is how long before the leader can end the session a holder's context ends.
func allowances(d time.Duration) time.Duration {
	return clockAllowance(d) + d/schedulingDivisor + d/workDivisor
}

// begin starts the lease of a new session. Its handshake was sent at sent, the answer arrived at
// arrived, and it granted the timeout.
func (l *lease) begin(sent, arrived time.Time, timeout time.Duration) {
	l.handshakeAnswered(timeout)
	l.answeredUntil = clock.Later(l.answeredUntil, sent.Add(timeout))
	l.confirmedUntil = sent // nothing is promised yet
	l.onlyHandshake(sent, arrived)
}

// resume continues the lease at a re-attachment, whose handshake was sent at sent. The answer
// arrived at arrived and granted the timeout. The lease never uses a longer timeout than before.
//
// If the timeout is shorter than before, another server has granted it, and the leader has begun to
// count to it. So nothing that was acknowledged earlier lasts beyond its end.
func (l *lease) resume(sent, arrived time.Time, timeout time.Duration) {
	timeout = min(timeout, l.timeout)
	isShorter := timeout < l.timeout
	l.handshakeAnswered(timeout)
	end := sent.Add(timeout)
	if isShorter {
		l.answeredUntil = end
		l.confirmedUntil = clock.Earlier(l.confirmedUntil, end)
	} else {
		l.answeredUntil = clock.Later(l.answeredUntil, end)
	}
	l.onlyHandshake(sent, arrived)
}

// handshakeAnswered sets the timeout that a handshake has granted, and the distances that follow
// from it. No re-attachment is without an answer any more.
func (l *lease) handshakeAnswered(timeout time.Duration) {
	l.timeout = timeout
	// A server's least session timeout is two ticks, so a shorter timeout proves a shorter tick
	// than we were told.
	l.replyToWrite = min(l.tick, timeout/2)
	l.requestToWrite = min(2*l.tick, timeout/2)
	l.pendingReattachSent, l.lostReattachSent = time.Time{}, time.Time{}
}

// onlyHandshake makes a connection's handshake the only unconfirmed acknowledgement. The first
// write on the connection confirms it. No write on the connection can confirm what the server
// before has acknowledged.
func (l *lease) onlyHandshake(sent, arrived time.Time) {
	l.unconfirmed = append(l.unconfirmed[:0], span{
		sent:            sent,
		firstArrived:    arrived.Add(-l.requestToWrite), // nothing is merged with what is so old
		confirmableFrom: arrived,
	})
}

// reattach notes that a handshake for the session is about to be sent.
func (l *lease) reattach(sent time.Time) { l.pendingReattachSent = sent }

// reattachFailed notes that the pending re-attachment will get no answer. It returns false if none
// is pending. wasClosed says that the server closed the connection, and so has not carried out the
// re-attachment.
func (l *lease) reattachFailed(wasClosed bool) bool {
	if l.pendingReattachSent.IsZero() {
		return false
	}
	if !wasClosed && l.lostReattachSent.IsZero() {
		l.lostReattachSent = l.pendingReattachSent
	}
	l.pendingReattachSent = time.Time{}
	return true
}

// endBy notes that the leader may end the session at end, although more was acknowledged or
// confirmed: it counts to a timeout that was granted but that the session does not use. What was
// acknowledged with the old timeout can't be confirmed any more.
func (l *lease) endBy(end time.Time) {
	l.confirmedUntil = clock.Earlier(l.confirmedUntil, end)
	l.answeredUntil = clock.Earlier(l.answeredUntil, end)
	l.unconfirmed = l.unconfirmed[:0]
}

// acknowledge counts the reply, which arrived at arrived, to a request that was sent at sent.
// isWrite says that a majority has acknowledged the request: a sync is no write.
//
// A write first confirms earlier acknowledgements, and is then, like every other request, an
// acknowledgement that a later write has to confirm.
func (l *lease) acknowledge(sent, arrived time.Time, isWrite bool) {
	l.answeredUntil = clock.Later(l.answeredUntil, sent.Add(l.timeout))
	if isWrite {
		l.confirmByWrite(sent)
	}
	l.addUnconfirmed(sent, arrived)
}

// confirmByWrite extends the confirmed lease by an acknowledged write that was sent at writeSent.
func (l *lease) confirmByWrite(writeSent time.Time) {
	n := l.confirmable(writeSent)
	if n == 0 {
		return
	}
	l.confirmedUntil = clock.Later(l.confirmedUntil, l.unconfirmed[n-1].sent.Add(l.timeout))
	l.unconfirmed = append(l.unconfirmed[:0], l.unconfirmed[n:]...)
}

// confirmable returns how many of the unconfirmed spans, from the oldest on, a write confirms that
// is sent at writeSent.
func (l *lease) confirmable(writeSent time.Time) (n int) {
	for n < len(l.unconfirmed) && !l.unconfirmed[n].confirmableFrom.After(writeSent) {
		n++
	}
	return n
}

// addUnconfirmed adds an acknowledgement to those that no write has confirmed yet.
func (l *lease) addUnconfirmed(sent, arrived time.Time) {
	from := clock.Later(arrived.Add(l.replyToWrite), sent.Add(l.requestToWrite))
	n := len(l.unconfirmed)
	if n > 0 && arrived.Sub(l.unconfirmed[n-1].firstArrived) < l.requestToWrite/mergeDivisor {
		// Merging delays a confirmation, and has no other effect.
		latest := &l.unconfirmed[n-1]
		latest.sent, latest.confirmableFrom = sent, from
		return
	}
	if n == maxSpans {
		// No write was acknowledged for long: only the latest spans matter.
		l.unconfirmed = append(l.unconfirmed[:0], l.unconfirmed[1:]...)
	}
	l.unconfirmed = append(l.unconfirmed,
		span{sent: sent, firstArrived: arrived, confirmableFrom: from})
}

// bytesArrived counts bytes of a long reply that arrived at time at. They confirm nothing, but they
// extend the lease of a session that is not retained.
func (l *lease) bytesArrived(at time.Time) {
	l.answeredUntil = clock.Later(l.answeredUntil, at.Add(l.timeout))
}

// endIfWritten returns when the lease of a retained session would end if a write were sent now, and
// acknowledged.
func (l *lease) endIfWritten(now time.Time) time.Time {
	hypothetical := *l
	if n := l.confirmable(now); n > 0 {
		hypothetical.confirmedUntil = clock.Later(l.confirmedUntil,
			l.unconfirmed[n-1].sent.Add(l.timeout))
	}
	return hypothetical.end(true)
}

// safeUntil returns the instant before which the ensemble can't have ended the session. Clocks of
// different speeds are allowed for.
func (l *lease) safeUntil() time.Time { return l.confirmedEnd(clockAllowance) }

// end returns when we have to give up the session. For a retained session that is before safeUntil:
// in between, every holder is told and its work stops. For other sessions it is when the plain
// acknowledgements run out.
func (l *lease) end(isRetained bool) time.Time {
	if isRetained {
		return l.confirmedEnd(allowances)
	}
	return l.answeredUntil.Add(-clockAllowance(l.timeout))
}

// confirmedEnd returns the end of the confirmed lease, less the allowance. A re-attachment without
// an answer may leave less of the lease: two ticks from when it was sent, less the allowance.
func (l *lease) confirmedEnd(allowance func(time.Duration) time.Duration) time.Time {
	end := l.confirmedUntil.Add(-allowance(l.timeout))
	left := min(2*l.tick, l.timeout)
	for _, sent := range [...]time.Time{l.pendingReattachSent, l.lostReattachSent} {
		if !sent.IsZero() {
			end = clock.Earlier(end, sent.Add(left-allowance(left)))
		}
	}
	return end
}

// beatEvery returns the interval between the writes that confirm a retained session's lease. It is
// a fifth of the timeout. It is less if two ticks are much of the timeout: what requestToWrite
// leaves of the timeout has to last for three writes.
func (l *lease) beatEvery() time.Duration {
	return min(l.timeout/5, (l.timeout-l.requestToWrite)/3)
}

// Healthy returns the least of the confirmed lease of a retained session that is left when all goes
// well, which is just before a heartbeat is answered: for a session timeout and the servers' tick.
func Healthy(timeout, tick time.Duration) time.Duration {
	l := lease{timeout: timeout, requestToWrite: min(2*tick, timeout/2)}
	return l.healthyRest() + allowances(timeout) - clockAllowance(timeout)
}

// healthyRest returns how much lease a retained session has left just before a heartbeat is
// answered, when all goes well. The lease is a timeout from a request that the heartbeat before has
// confirmed. The age of that request is then
//
//   - the time since the heartbeat before, beatEvery;
//   - requestToWrite, which it was older than that heartbeat;
//   - up to a ping's interval, since requests are that far apart;
//   - up to requestToWrite/mergeDivisor, since acknowledgements are merged.
//
// With a timeout of 10 s and ticks of 2 s it is 2 + 4 + 0.5 + 0.25 s. The allowances are 1.1 s, so
// 2.15 s are left.
func (l *lease) healthyRest() time.Duration {
	age := l.beatEvery() + l.requestToWrite
	age += l.timeout/retainedPingDivisor + l.requestToWrite/mergeDivisor
	return l.timeout - age - allowances(l.timeout)
}

// lowWater returns the rest of a lease below which heartbeats become more frequent.
func (l *lease) lowWater() time.Duration { return (l.timeout - l.requestToWrite) / 4 }
