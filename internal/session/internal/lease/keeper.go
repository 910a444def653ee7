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

	asked    time.Duration // the session timeout to ask for: counts until one has been granted
	clock    *clock.Clock
	deadline *Deadline

	latestSafeUntil time.Time     // the latest of all so far
	retentions      int           // not yet released: while there is one, the session is retained
	retainedSince   time.Time     // since when there has been one
	writeTook       time.Duration // duration of the latest acknowledged write
	// conns given up for silence since the last prompt reply to a write
	silences int
}

// NewKeeper returns the keeper of a session that asks for a timeout. tick is the servers', or 0 if
// it is not found out yet.
func NewKeeper(asked, tick time.Duration, c *clock.Clock, d *Deadline) *Keeper {
	return &Keeper{lease: lease{tick: tick}, asked: asked, clock: c, deadline: d}
}

// Each of these times is the timeout divided by the constant.
const (
	// between pings while the session is retained: a write has something recent to confirm
	retainedPingDivisor = 20
	// otherwise between pings: the driver's, at a third, come too late for a hold to begin
	idlePingDivisor = 6
	// the least lease with which a hold begins, after a write has confirmed it
	checkedDivisor   = 8
	uncheckedDivisor = 4  // the lease with which a hold begins without a request
	beatDivisor      = 20 // the longest time between two runs of the heartbeat
	thinBeatDivisor  = 20 // between heartbeats while little is left of the lease
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

// changed follows each change of the lease.
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

// ReattachFailed notes that the re-attachment that waits for its answer, if there is one, will get
// none. wasClosed says that the server closed the connection, and so has not carried it out.
func (k *Keeper) ReattachFailed(wasClosed bool) {
	if k.reattachFailed(wasClosed) {
		k.changed()
	}
}

// MayGrant returns an error if no lease can be had with the timeout that a server grants, to a new
// session or to one that is taken over.
//
// A server grants a new session more than was asked for only if its minSessionTimeout is more. By
// default that is two ticks. If it is more than two ticks, as the caller gave them or another
// server showed them, the caller has to ask for that much. A session that is taken over keeps the
// shorter timeout: see lease.resume.
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
	k.shorten(sent.Add(granted))
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

// Acknowledge counts the reply, which arrived at at, to a request that was sent at sent. isWrite
// says that a majority has it: it is not true of a sync.
func (k *Keeper) Acknowledge(sent, at time.Time, isWrite bool) {
	k.acknowledge(sent, at, isWrite)
	k.changed()
	if !isWrite {
		return
	}
	k.writeTook = at.Sub(sent)
	if k.writeTook < k.basePatience() {
		k.silences = 0
	}
}

// GaveUpSilent notes that a conn was given up for silence.
func (k *Keeper) GaveUpSilent() { k.silences = min(k.silences+1, maxSilences) }

// EnoughToHold reports whether enough of the lease is left now for a hold to begin: a quarter of
// the timeout. If the leader has just confirmed the lease, an eighth is enough or, if writes are
// slow, what the next heartbeat needs.
func (k *Keeper) EnoughToHold(now time.Time, isConfirmed bool) bool {
	return k.LeftIfRetained(now) >= k.leastToHold(isConfirmed)
}

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

// Intervals returns the longest time between two runs of the heartbeat, and between two requests on
// a conn.
func (k *Keeper) Intervals() (beat, ping time.Duration) {
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
//   - If enough is left that a write can still be in time, it is not due before beatEvery after the
//     first hold has begun: so a short hold costs no heartbeat.
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

// NeedsNewConn reports whether only a new connection can still confirm the lease in time. The
// present one is in use since upAt; its handshake took handshakeTook.
//
// A write's reply confirms only acknowledgements that came at least replyToWrite before the write
// was sent. If writes take long, these are so old that the lease would be over before the heartbeat
// after the next is answered. A handshake needs no such interval: the first write after it confirms
// it.
func (k *Keeper) NeedsNewConn(now, upAt time.Time, handshakeTook time.Duration) bool {
	t := k.timeout
	isSlow := k.writeTook > t/10
	hadTime := now.Sub(upAt) > k.writeTook // for a write on the present connection
	if !k.Retained() || !isSlow || !hadTime {
		return false
	}
	reconnected := handshakeTook + k.writeTook
	canStillReconnect := k.LeftIfRetained(now) > reconnected
	nextButOne := k.writeTook + max(k.beatEvery(), handshakeTook) + t/beatDivisor
	endsBefore := k.endIfWritten(now).Sub(now) < nextButOne
	return canStillReconnect && endsBefore
}

// maxSilences bounds how often patience doubles.
const maxSilences = 4

// Patience bounds the wait for a connected server's reply before another server is tried.
//
//   - It begins with basePatience.
//   - If the connection before was given up for silence too, and the leader has answered no write
//     promptly since, the server is not to blame: writes take that long on every server. So
//     patience doubles each time.
//   - It is longer than the latest write took.
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
