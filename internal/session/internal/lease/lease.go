package lease

import (
	"time"

	"github.com/zklock/locker/internal/session/internal/clock"
)

// The lease clock: until when can the ensemble certainly not have ended the session?
//
// The leader ends a session when it has heard nothing of it for the negotiated timeout T. So a
// reply to a request sent at s seems to prove that the session lives until s + T. But that holds
// only if the leader answered. A follower answers pings and reads by itself, and tells the leader
// which sessions it heard of when the leader asks, about every half tick. A follower that is cut
// off goes on answering for some ticks while the leader counts.
//
// So an acknowledgement counts in two steps:
//
//	acked      s + T of the latest acknowledged request: what the client relies on while the session is not retained
//	confirmed  s + T of the latest request that was sent two ticks, and whose reply arrived one tick, before some
//	           later write was sent, at s', which has been acknowledged
//
// Safety: the report that names our session left the server at most half a tick after the reply,
// and, from an observer behind another observer, half a tick later once more. It went on the same
// ordered stream that carried the write to the leader, so it arrived before the write, which was
// answered: the leader counts from an instant after s.
//
// It has to be a write: a leader that was cut off from the others answers a sync alone, for
// syncLimit ticks, when they may have chosen another leader, which counts from its own beginning. A
// write is acknowledged by a majority, so no other leader began before it, and one that begins
// later gives every session its whole timeout again. And the leader has to look at the session for
// the write, as it does for each operation of a multi; a refusal because of the session may stand
// inside a multi whose header says OK (see wire.Verdict).
//
// Why two ticks from the request and one from the reply: when replies are fast, two ticks are twice
// what the report needs, which covers a leader that asks late. Two ticks from a slow reply would
// leave no lease.
//
// A handshake counts as confirmed only when the first write on its connection has been answered:
// the handshake of a new session may have been seen by the connected server alone (local sessions),
// and that of a re-attached one was validated by that server's leader, which may have been
// replaced. That write needs no slack: the create that makes a session global begins the leader's
// count, a re-attachment was told to the leader itself, and a server that changes its leader closes
// its connections.
//
// A re-attachment can shorten the leader's count if the server has a lower maxSessionTimeout than
// the others; its answer says so. Until the answer arrives, the lease ends two ticks after the
// handshake was sent: no server grants less, unless its minSessionTimeout is set lower. A server
// that closes the connection instead is taken for one without a leader, which has not carried out
// the re-attachment: if it has, and the reply was lost with the connection, the lease is safe
// because all servers have the same limits (docs/maintainers/proof.md, A5).
//
// Three allowances stand between the instant at which a holder's context ends and the leader's:
// drift, for clocks of different speeds; lead, for the time that our own goroutines need to end the
// context; and margin, in which the work that was given the context can stop. SafeUntil allows for
// drift alone.
//
// Assumed, each with the test that watches it, if there is one ("model" is
// TestTheLeaseNeverOutlivesTheLeadersPatience, which draws runs that use the assumption to its
// limit):
//
//  1. The clocks of this machine and of the leader's differ in speed by at most two per cent, and ours counts the time for
//     which the machine stood still (see clock.Clock: a paused guest's may not). Model.
//  2. Our process runs, or asks Alive when it runs again. TestAliveReadsTheClockAndWaitsForNoTimer.
//  3. The tick, found out (see Session.findTick) or Config.TickTime, is not below the longest tickTime of the ensemble's servers.
//     A grant that contradicts it is refused: TestAGrantThatNoLeaseCanBeHadWithIsRefusedWithTheRule.
//  4. A follower tells its leader of touched sessions twice a tick, on the ordered stream that carries its writes; an
//     observer may be behind another observer, and no further. Model; with a follower that is cut off,
//     TestALeaseOfAFollowerThatLostItsLeaderEndsBeforeTheLeaderEndsTheSession.
//  5. A server that loses that stream closes its clients' connections, and has no second stream beside the first. So the
//     answers on one of our connections belong to one stream. A server that is cut off, healed and cut off again within one
//     of our round trips may lose its earlier reports, but then no later write is answered on their connection. Model ("the
//     follower starts anew"); on real servers no test cuts twice within a round trip.
//  6. A write is acknowledged by a majority, and a leader that begins later gives each session its whole timeout again.
//     tests/e2e, TestHoldIsNotProlongedByALeaderThatHasBeenReplaced.
//  7. The leader looks at the session before it carries out any operation of a multi, and says so inside the reply when it
//     refuses. TestAHeartbeatThatSaysExpiredInsideEndsTheSessionAndConfirmsNothing.
//  8. The leader asks its followers every half tick. One that was stopped may answer our write before it has asked again,
//     and end the session by earlier reports; that takes a stop of nearly the timeout, after which the session is due as it
//     wakes. Model, with shorter stops; tests/e2e/chaos stops leaders for 0.9 to 1.1 timeouts.
//  9. No server grants less than two ticks: what is left of a lease while a re-attachment has no answer.
//     TestScenario59_ALeaseEndsBeforeTheShorterSessionOfAReattachmentWithoutAnAnswer.
//  10. A server that hung with our handshake unread does not carry it out after we have gone to another server: with a lower
//     limit of its own it would shorten the leader's count. No test.
//  11. The granted timeout is two ticks or more. Where minSessionTimeout was lowered, the tick that is found out is too short
//     (package doctor says so) and, if it was given, there is less slack than an observer behind an observer needs. No test.
//
// Source: measured on a three-node ensemble, where a lease by the latest reply (acked) outlived the
// session by 4.0 s.
type lease struct {
	timeout time.Duration // the least granted to this session
	tick    time.Duration // of the servers, or longer; 0: not found out yet
	settle  time.Duration // one tick, or half the timeout: from a reply to the write that confirms it
	slack   time.Duration // two ticks, or half the timeout: from a request to the write that confirms it

	acked     time.Time
	confirmed time.Time
	marks     []mark // acknowledgements not yet confirmed, oldest first, at most maxMarks

	reattachSent   time.Time // when the re-attachment that waits for its answer was sent; zero: none
	unansweredSent time.Time // when the first unanswered re-attachment after the last answered one was sent; zero: none
}

// mark is a span of acknowledgements: when the last one's request was sent, when the first one
// arrived, and from when on a write confirms them all.
type mark struct{ sent, first, ready time.Time }

// maxMarks bounds a lease's memory. Marks closer than slack/mergePart are merged, so maxMarks of
// them span four slacks or more, and one is always old enough to be confirmed.
const (
	maxMarks  = 64
	mergePart = 16
)

// Fractions of the timeout.
const (
	driftPart  = 50 // for clocks: quartz is a thousand times better, a machine with a bad time daemon is not
	leadPart   = 25 // for our own scheduling: on overloaded machines a goroutine runs hundreds of ms late
	marginPart = 20 // for the work to stop: enough to cancel a request and to skip the next write
)

func drift(d time.Duration) time.Duration { return d / driftPart }

// allowances is how long before the leader can end the session a holder's context ends.
func allowances(d time.Duration) time.Duration { return drift(d) + d/leadPart + d/marginPart }

// begin starts the lease at the handshake of a new session, or continues it at a re-attachment,
// answered at time at.
func (l *lease) begin(sent, at time.Time, timeout time.Duration, fresh bool) {
	if !fresh && timeout > l.timeout {
		timeout = l.timeout // nothing relies on the longer one
	}
	// A server's least session timeout is two ticks, so a shorter timeout proves a shorter tick
	// than we were told.
	l.settle, l.slack = min(l.tick, timeout/2), min(2*l.tick, timeout/2)
	l.reattachSent, l.unansweredSent = time.Time{}, time.Time{}
	end := sent.Add(timeout)
	shorter := timeout < l.timeout // by another server: the leader counts anew, to less
	l.timeout = timeout
	if shorter || end.After(l.acked) {
		l.acked = end
	}
	if fresh {
		l.confirmed = sent // nothing is promised yet
	} else if shorter {
		l.confirmed = clock.Earlier(l.confirmed, end)
	}
	// Forget acknowledgements by the previous server: no write on this connection can confirm them.
	l.marks = append(l.marks[:0], mark{sent, at.Add(-l.slack), at}) // what follows is not merged with it
}

// reattach notes that a handshake for the session is about to be sent.
func (l *lease) reattach(sent time.Time) { l.reattachSent = sent }

// unanswered notes that the re-attachment that waits for its answer will get none, and reports
// whether there was one. closed: the server closed the connection, and so has not carried it out.
func (l *lease) unanswered(closed bool) bool {
	waited := !l.reattachSent.IsZero()
	if waited && !closed && l.unansweredSent.IsZero() {
		l.unansweredSent = l.reattachSent
	}
	l.reattachSent = time.Time{}
	return waited
}

// shorten notes that the leader ends the session at end, perhaps earlier than was confirmed.
func (l *lease) shorten(end time.Time) {
	l.confirmed, l.acked = clock.Earlier(l.confirmed, end), clock.Earlier(l.acked, end)
	l.marks = l.marks[:0]
}

// ack counts the reply to a request; leader: it was a write, which a majority has.
func (l *lease) ack(sent, at time.Time, leader bool) {
	l.acked = clock.Later(l.acked, sent.Add(l.timeout))
	if leader {
		n := 0
		for n < len(l.marks) && !l.marks[n].ready.After(sent) {
			n++
		}
		if n > 0 {
			l.confirmed = clock.Later(l.confirmed, l.marks[n-1].sent.Add(l.timeout))
			l.marks = append(l.marks[:0], l.marks[n:]...)
		}
	}
	ready := clock.Later(at.Add(l.settle), sent.Add(l.slack))
	// Merging only delays a mark's confirmation.
	if n := len(l.marks); n > 0 && at.Sub(l.marks[n-1].first) < l.slack/mergePart {
		l.marks[n-1].sent, l.marks[n-1].ready = sent, ready
		return
	}
	if len(l.marks) == maxMarks { // nothing went through the leader for long: only the latest marks matter
		l.marks = append(l.marks[:0], l.marks[1:]...)
	}
	l.marks = append(l.marks, mark{sent, at, ready})
}

// hear counts bytes of a long reply that arrived at time at. They confirm nothing, but keep a
// session going that is not retained.
func (l *lease) hear(at time.Time) {
	l.acked = clock.Later(l.acked, at.Add(l.timeout))
}

// prospect returns when the lease of a retained session would end if a write sent now were
// acknowledged.
func (l *lease) prospect(now time.Time) time.Time {
	then := *l
	for _, m := range l.marks {
		if !m.ready.After(now) {
			then.confirmed = clock.Later(then.confirmed, m.sent.Add(l.timeout))
		}
	}
	return then.end(true)
}

// safeUntil returns the instant before which the ensemble can't have ended the session, drift
// allowed for.
func (l *lease) safeUntil() time.Time { return l.before(drift) }

// end returns when we have to give up the session: if it is retained, early enough that every
// holder hears of it, and its work can stop, before safeUntil; else when the plain acknowledgements
// run out.
func (l *lease) end(retained bool) time.Time {
	if retained {
		return l.before(allowances)
	}
	return l.acked.Add(-drift(l.timeout))
}

// before returns the end of the confirmed lease or, if earlier, of what an unanswered re-attachment
// leaves of it, less allowance.
func (l *lease) before(allowance func(time.Duration) time.Duration) time.Time {
	end := l.confirmed.Add(-allowance(l.timeout))
	for _, sent := range [...]time.Time{l.reattachSent, l.unansweredSent} {
		if left := min(2*l.tick, l.timeout); !sent.IsZero() {
			end = clock.Earlier(end, sent.Add(left-allowance(left)))
		}
	}
	return end
}

// beatEvery returns how often a write has to confirm a retained session's lease: every fifth of the
// timeout, and more often if two ticks are much of it, so that the rest after the slack lasts for
// three.
func (l *lease) beatEvery() time.Duration { return min(l.timeout/5, (l.timeout-l.slack)/3) }

// Healthy returns the least of the confirmed lease of a retained session that is left when all goes
// well, which is just before a heartbeat is answered: for a session timeout and the servers' tick.
func Healthy(timeout, tick time.Duration) time.Duration {
	l := lease{timeout: timeout, slack: min(2*tick, timeout/2)}
	return l.steady() + allowances(timeout) - drift(timeout)
}

// steady returns how much lease a retained session has left just before a heartbeat is answered,
// when all goes well.
func (l *lease) steady() time.Duration {
	return l.timeout - l.slack - l.slack/mergePart - l.timeout/retainedPingPart - l.beatEvery() - allowances(l.timeout)
}

// thin returns the rest of a lease below which heartbeats become more frequent.
func (l *lease) thin() time.Duration { return (l.timeout - l.slack) / 4 }
