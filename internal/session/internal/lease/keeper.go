package lease

import (
	"cmp"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/internal/clock"
)

// Keeper keeps the lease of one session. It knows how many rely on it and how long writes take, and
// so when a write has to confirm it, and for how long a server may be silent. Each change of the
// lease's end moves the deadline. Its owner's mutex guards it; no method blocks.
type Keeper struct {
	lease

	asked    time.Duration // the session timeout to ask for; counts until one has been granted
	clock    *clock.Clock
	deadline *Deadline

	latestSafeUntil time.Time     // the latest of all so far
	retentions      int           // not yet released: while there is one, the session is retained
	retainedSince   time.Time     // since when there has been one
	writeTook       time.Duration // duration of the latest acknowledged write
	// connections given up for silence since the last prompt reply to a write, up to maxSilences
	silences int
}

// NewKeeper returns the keeper of a session that asks for a timeout. tick is the servers', or 0 if
// it is not found out yet.
func NewKeeper(asked, tick time.Duration, c *clock.Clock, d *Deadline) *Keeper {
	return &Keeper{lease: lease{tick: tick}, asked: asked, clock: c, deadline: d}
}

// Each of these times is the timeout divided by the constant.
const (
	// The time between pings while the session is retained: so a write has something recent to
	// confirm.
	retainedPingDivisor = 20
	// The time between pings otherwise. The driver pings every third of the timeout, which is too
	// rare for a hold to begin without a request.
	idlePingDivisor = 6
	// The least lease with which a hold begins after a write has confirmed the lease.
	checkedDivisor = 8
	// The longest time of a write that is no reason to give up a connection. It is less than that
	// of checkedDivisor, since a heartbeat has to leave time for the next one.
	slowForBeatDivisor = 10
	// The least lease with which a hold begins without a request.
	uncheckedDivisor = 4
	// The longest time between two runs of the heartbeat.
	beatDivisor = 20
	// The time between two heartbeats while little is left of the lease.
	thinBeatDivisor = 20
)

// Timeout returns the least session timeout that was granted, or 0 if none has been yet.
func (k *Keeper) Timeout() time.Duration { return k.timeout }

// Tick returns the servers' tick, or 0 if it is not found out yet.
func (k *Keeper) Tick() time.Duration { return k.tick }

// FoundTick notes the servers' tick.
func (k *Keeper) FoundTick(tick time.Duration) { k.tick = tick }

// SafeUntil returns the instant before which the ensemble can't have ended the session. Clocks of
// different speeds are allowed for.
func (k *Keeper) SafeUntil() time.Time { return k.safeUntil() }

// Retained reports whether the session is retained.
func (k *Keeper) Retained() bool { return k.retentions > 0 }

// LeftIfRetained returns the time from now until the session is over, if it is retained. Its caller
// reads the clock (clock.Clock.Now) before it locks its mutex, since that takes system calls.
func (k *Keeper) LeftIfRetained(now time.Time) time.Duration { return k.end(true).Sub(now) }

// changed updates what is derived from the lease. It is called after each change of the lease, and
// when retentions begins or ceases to be zero.
func (k *Keeper) changed() {
	k.latestSafeUntil = clock.Later(k.latestSafeUntil, k.safeUntil())
	k.deadline.set(k.end(k.Retained()), k.timeout/beatDivisor)
}

// Promised returns the latest instant that SafeUntil has ever returned, or could have.
func (k *Keeper) Promised() time.Time { return k.latestSafeUntil }

// Reattach notes that a handshake for the session is about to be sent.
func (k *Keeper) Reattach(sent time.Time) {
	k.reattach(sent)
	k.changed()
}

// ReattachFailed notes that the pending re-attachment, if there is one, will get no answer.
// wasClosed says that the server closed the connection, and so has not carried the re-attachment
// out.
func (k *Keeper) ReattachFailed(wasClosed bool) {
	if k.reattachFailed(wasClosed) {
		k.changed()
	}
}

// MayGrant returns an error if no lease can be had with the timeout that a server has granted, to a
// new session or to one that is re-attached. That is so if
//
//   - the timeout is shorter than a tick;
//   - a new session gets more than was asked for, and more than two ticks. A server grants more
//     than was asked for only if its minSessionTimeout is more, which is two ticks by default. If
//     it was set higher, the caller has to ask for that much.
//
// A session that is re-attached keeps the shorter timeout: see lease.resume.
func (k *Keeper) MayGrant(granted time.Duration, isNew bool) error {
	switch {
	case isNew && granted > max(k.asked, 2*k.tick):
		return fmt.Errorf("granted a session timeout of %v, and %v was asked for: "+
			"if the servers' minSessionTimeout is above two ticks, ask for that much", granted, k.asked)
	case granted < k.tick:
		return fmt.Errorf(
			"granted a session timeout of %v, which is shorter than a server tick of %v: "+
				"ask for at least two ticks, and give the ensemble's tickTime as the server tick", granted, k.tick)
	}
	return nil
}

// NoteRefusedGrant notes that a server has granted, in answer to a re-attachment, what MayGrant
// refuses: the leader counts to it from now on.
func (k *Keeper) NoteRefusedGrant(sent time.Time, granted time.Duration) {
	k.endBy(sent.Add(granted))
	k.changed()
}

// Begin starts the lease at the handshake of a new session, which was sent at sent.
func (k *Keeper) Begin(sent time.Time, granted time.Duration) {
	k.begin(sent, k.clock.Stamp(), granted)
	k.changed()
}

// Resume continues the lease at a re-attachment, which was sent at sent.
func (k *Keeper) Resume(sent time.Time, granted time.Duration) {
	k.resume(sent, k.clock.Stamp(), granted)
	k.changed()
}

// BytesArrived counts bytes of a long reply that arrived at time at.
func (k *Keeper) BytesArrived(at time.Time) {
	k.bytesArrived(at)
	k.changed()
}

// Acknowledge counts the reply, which arrived at arrived, to a request that was sent at sent.
// isWrite says that a majority has acknowledged the request: a sync is no write.
func (k *Keeper) Acknowledge(sent, arrived time.Time, isWrite bool) {
	k.acknowledge(sent, arrived, isWrite)
	k.changed()
	if !isWrite {
		return
	}
	k.writeTook = arrived.Sub(sent)
	if k.writeTook < k.basePatience() {
		k.silences = 0
	}
}

// GaveUpSilent notes that a conn was given up for silence.
func (k *Keeper) GaveUpSilent() { k.silences = min(k.silences+1, maxSilences) }

// EnoughToHold reports whether enough of the lease is left now for a hold to begin. isConfirmed
// says that the leader has just confirmed the lease.
func (k *Keeper) EnoughToHold(now time.Time, isConfirmed bool) bool {
	return k.LeftIfRetained(now) >= k.leastToHold(isConfirmed)
}

// leastToHold returns how much of the lease a hold needs to begin: a quarter of the timeout. If the
// leader has just confirmed the lease, more can't be had at once: then an eighth is enough, or what
// the next heartbeat needs if writes are slow.
func (k *Keeper) leastToHold(isConfirmed bool) time.Duration {
	t := k.timeout
	if !isConfirmed {
		return t / uncheckedDivisor
	}
	nextHeartbeat := min(k.writeTook+t/10, t/2)
	return max(t/checkedDivisor, nextHeartbeat)
}

// WritesAreSlow reports whether the latest write took long.
func (k *Keeper) WritesAreSlow() bool { return k.writeTook > k.timeout/checkedDivisor }

// Retain counts one more holder. The heartbeat runs within a twentieth of the timeout.
func (k *Keeper) Retain() {
	k.retentions++
	if k.retentions == 1 {
		k.retainedSince = k.clock.Stamp()
		k.changed()
	}
}

// Release undoes a Retain.
func (k *Keeper) Release() {
	k.retentions--
	if k.retentions == 0 {
		k.changed()
	}
}

// Intervals returns the longest time between two runs of the heartbeat, and how long nothing is
// sent on a connection before a ping is.
func (k *Keeper) Intervals() (run, ping time.Duration) {
	if k.Retained() {
		return k.timeout / beatDivisor, k.timeout / retainedPingDivisor
	}
	return k.timeout / beatDivisor, k.timeout / idlePingDivisor
}

// BeatDue returns the time until a heartbeat of a retained session is due. last is when the latest
// heartbeat was queued on this connection, or a later acknowledged write was sent. It is zero if
// there was neither.
//
//   - If last is zero, a heartbeat is due at once: no write has confirmed the handshake.
//   - If little is left of the lease, it is due a twentieth of the timeout after last.
//   - Otherwise it is due beatEvery after last.
//   - If a write that is sent now would be answered before little is left, the interval counts at
//     the earliest from when the session was retained: so a short hold costs no heartbeat.
func (k *Keeper) BeatDue(now, last time.Time) time.Duration {
	if last.IsZero() {
		return 0
	}
	left := k.LeftIfRetained(now)
	if left < k.lowWater() {
		return last.Add(k.timeout / thinBeatDivisor).Sub(now)
	}
	if left >= k.lowWater()+k.writeTook {
		last = clock.Later(last, k.retainedSince)
	}
	return last.Add(k.beatEvery()).Sub(now)
}

// NeedsNewConn reports whether to give up the present connection, which works, for a new one: only
// that can still confirm the lease in time. The present one has been in use since upAt, and its
// handshake took handshakeTook.
//
// A write confirms only acknowledgements that came at least replyToWrite before it was sent. If
// writes take long, these are old by the time the write is answered, and the lease that they leave
// is short. A handshake needs no such interval: the first write after it confirms it.
//
// Suppose that a write is sent now and acknowledged. What comes next extends the lease again. It is
// one of
//
//   - another heartbeat on the present connection. It is sent beatEvery later, and its reply comes
//     writeTook after that;
//   - a new connection, if a later run of the heartbeat gives up the present one. The handshake
//     takes handshakeTook, and the first write after it takes writeTook.
//
// Either may begin t/beatDivisor late, since the heartbeat runs that rarely. Only one of them will
// come, and the lease has to last for whichever it is: if it lasts for the heartbeat alone, that
// later run finds no time to reconnect. So if it would end before the slower one is done, the time
// for a new connection is now.
//
// Two things speak against it. If the lease ends before a new connection could confirm it, the
// present one is the better chance. And a connection that has not had time for a write may still
// confirm its own handshake.
func (k *Keeper) NeedsNewConn(now, upAt time.Time, handshakeTook time.Duration) bool {
	t := k.timeout
	slowForBeat := k.writeTook > t/slowForBeatDivisor
	hadTimeForWrite := now.Sub(upAt) > k.writeTook
	if !k.Retained() || !slowForBeat || !hadTimeForWrite {
		return false
	}
	canReconnect := k.LeftIfRetained(now) > handshakeTook+k.writeTook
	leftIfWritten := k.endIfWritten(now).Sub(now)
	nextExtension := max(k.beatEvery(), handshakeTook) + k.writeTook + t/beatDivisor
	return canReconnect && leftIfWritten < nextExtension
}

// maxSilences bounds how often patience doubles.
const maxSilences = 4

// Patience bounds the wait for a connected server's reply before another server is tried.
//
//   - It begins with basePatience.
//   - If the connection before was given up for silence too, and the leader has answered no write
//     promptly since, the server is not to blame: writes take that long on every server. So
//     patience doubles each time, up to maxSilences times.
//   - It is longer than the latest write took, as far as the next rule allows.
//   - It is at most half the timeout while the session is retained, which leaves time for another
//     server, and otherwise three quarters, since the session itself would end.
func (k *Keeper) Patience() time.Duration {
	t := cmp.Or(k.timeout, k.asked)
	most := t - t/4
	if k.Retained() {
		most = t / 2
	}
	least := k.basePatience()
	wanted := max(least<<k.silences, k.writeTook+k.writeTook/4)
	return max(least, min(wanted, most))
}

// basePatience returns how long a reply takes at most when all is well: a quarter of the timeout,
// or less if a holder needs the time to reach another server while its lease lasts. The server may
// have fallen silent just after a reply, and the next request leaves up to a ping's interval later.
func (k *Keeper) basePatience() time.Duration {
	patience := defaultPatience(cmp.Or(k.timeout, k.asked))
	if !k.Retained() {
		return patience
	}
	whileLeaseLasts := k.healthyRest() - k.timeout/retainedPingDivisor
	return min(patience, max(whileLeaseLasts, k.timeout/10))
}

func defaultPatience(timeout time.Duration) time.Duration {
	return max(timeout/4, 100*time.Millisecond)
}
