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

	promised      time.Time // the latest SafeUntil so far
	retentions    int       // not yet released: while there is one, the session is retained
	retainedSince time.Time
	writeTook     time.Duration // duration of the latest acknowledged write
	stalls        int           // conns given up for silence since the last prompt reply to a write
}

// NewKeeper returns the keeper of a session that asks for a timeout; tick is the servers', or 0:
// not found out yet.
func NewKeeper(asked, tick time.Duration, c *clock.Clock, d *Deadline) *Keeper {
	return &Keeper{lease: lease{tick: tick}, asked: asked, clock: c, deadline: d}
}

// Fractions of the timeout.
const (
	retainedPingPart = 20 // between pings while the session is retained: a write has something recent to confirm
	idlePingPart     = 6  // else between pings: the driver's, at a third, come too late for a hold to begin
	minPart          = 8  // least lease with which a hold begins
	freshPart        = 4  // lease with which a hold begins without a request
	lookPart         = 20 // longest time between two runs of the heartbeat
)

// Timeout returns the least session timeout that was granted; 0: none yet.
func (k *Keeper) Timeout() time.Duration { return k.timeout }

// Tick returns the servers' tick; 0: not found out yet.
func (k *Keeper) Tick() time.Duration { return k.tick }

// FoundTick notes the servers' tick.
func (k *Keeper) FoundTick(tick time.Duration) { k.tick = tick }

// SafeUntil returns the instant before which the ensemble can't have ended the session, drift
// allowed for.
func (k *Keeper) SafeUntil() time.Time { return k.safeUntil() }

// Retained reports whether the session is retained.
func (k *Keeper) Retained() bool { return k.retentions > 0 }

// RetainedLeft returns the time from now until the session is over, if it is retained. Its caller
// reads the clock (clock.Clock.Now) before it locks its mutex, since that takes system calls.
func (k *Keeper) RetainedLeft(now time.Time) time.Duration { return k.end(true).Sub(now) }

func (k *Keeper) moved() {
	k.promised = clock.Later(k.promised, k.safeUntil())
	k.deadline.set(k.end(k.Retained()), k.timeout/lookPart)
}

// Promised returns the latest instant that SafeUntil has ever returned, or could have.
func (k *Keeper) Promised() time.Time { return k.promised }

// Reattach notes that a handshake for the session is about to be sent.
func (k *Keeper) Reattach(sent time.Time) {
	k.reattach(sent)
	k.moved()
}

// Unanswered notes that the re-attachment that waits for its answer, if there is one, will get
// none. closed: the server closed the connection, and so has not carried it out.
func (k *Keeper) Unanswered(closed bool) {
	if k.unanswered(closed) {
		k.moved()
	}
}

// MayGrant checks the timeout that a server grants, to a new session (fresh) or to one that is
// taken over. A server grants a new session more than was asked for only if its minSessionTimeout
// is more; by default that is two ticks. If it is more than two ticks, as the caller gave them or
// another server showed them, the caller has to ask for that much. (A session that is taken over
// keeps the shorter timeout: see lease.begin.)
func (k *Keeper) MayGrant(granted time.Duration, fresh bool) error {
	switch {
	case fresh && granted > max(k.asked, 2*k.tick):
		return fmt.Errorf("granted a session timeout of %v, and %v was asked for: if the servers' minSessionTimeout is above two ticks, ask for that much",
			granted, k.asked)
	case granted < k.tick:
		return fmt.Errorf("granted a session timeout of %v, which is shorter than a server tick of %v: "+
			"ask for at least two ticks, and give the ensemble's tickTime as the server tick", granted, k.tick)
	}
	return nil
}

// Refuse notes that a server has granted, in answer to a re-attachment, what MayGrant refuses: the
// leader counts it from now on.
func (k *Keeper) Refuse(sent time.Time, granted time.Duration) {
	k.shorten(sent.Add(granted))
	k.moved()
}

// Begin starts the lease at the handshake of a new session (fresh), or continues it at a
// re-attachment.
func (k *Keeper) Begin(sent time.Time, granted time.Duration, fresh bool) {
	k.begin(sent, k.clock.Stamp(), granted, fresh)
	k.moved()
}

// Hear counts bytes of a long reply that arrived at time at.
func (k *Keeper) Hear(at time.Time) {
	k.hear(at)
	k.moved()
}

// Ack counts the reply to a request; leader: it was a write, which a majority has.
func (k *Keeper) Ack(sent, at time.Time, leader bool) {
	k.ack(sent, at, leader)
	k.moved()
	if leader {
		if k.writeTook = at.Sub(sent); k.writeTook < k.prompt() {
			k.stalls = 0
		}
	}
}

// GaveUpSilent notes that a conn was given up for silence.
func (k *Keeper) GaveUpSilent() { k.stalls = min(k.stalls+1, maxStalls) }

// Enough reports whether enough of the lease is left now for a hold to begin. confirmed: the leader
// has just confirmed it.
func (k *Keeper) Enough(now time.Time, confirmed bool) bool {
	t := k.timeout
	enough := t / freshPart
	if confirmed { // an eighth or, if writes are slow, what the next heartbeat needs
		enough = max(t/minPart, min(k.writeTook+t/10, t/2))
	}
	return k.RetainedLeft(now) >= enough
}

// Slow reports whether a write takes long.
func (k *Keeper) Slow() bool { return k.writeTook > k.timeout/minPart }

// Retain counts one more holder. The heartbeat looks within a twentieth of the timeout.
func (k *Keeper) Retain() {
	if k.retentions++; k.retentions == 1 {
		k.retainedSince = k.clock.Stamp()
		k.moved()
	}
}

// Release undoes a Retain.
func (k *Keeper) Release() {
	if k.retentions--; k.retentions == 0 {
		k.moved()
	}
}

// Intervals returns the longest time between two looks of the heartbeat, and between two requests
// on a conn.
func (k *Keeper) Intervals() (look, ping time.Duration) {
	if k.Retained() {
		return k.timeout / lookPart, k.timeout / retainedPingPart
	}
	return k.timeout / lookPart, k.timeout / idlePingPart
}

// BeatDue returns the time until the next heartbeat is due. last is when the latest heartbeat was
// queued on this connection, or a later acknowledged write was sent; zero if there was neither.
//
//   - If last is zero, a heartbeat is due at once: no write has confirmed the handshake.
//   - If the lease runs thin, it is due a twentieth of the timeout after last.
//   - Usually it is due beatEvery after last or, if that is later and the lease lasts for a write
//     beyond thin, after the first hold began: so a short hold costs no heartbeat.
func (k *Keeper) BeatDue(now, last time.Time) time.Duration {
	left := k.end(true).Sub(now)
	switch {
	case last.IsZero():
		return 0
	case left < k.thin():
		return last.Add(k.timeout / 20).Sub(now)
	case left >= k.thin()+k.writeTook:
		last = clock.Later(last, k.retainedSince)
	}
	return last.Add(k.beatEvery()).Sub(now)
}

// NeedsNewConn reports whether only a new connection can still confirm the lease in time. A write's
// reply confirms only acknowledgements that came at least lease.settle before the write was sent.
// If writes take long, these are so old that the lease would be over before the heartbeat after the
// next is answered. A handshake needs no such interval: the first write after it confirms it, if
// there is time for both. The connection is in use since upAt; its handshake took shook.
func (k *Keeper) NeedsNewConn(now, upAt time.Time, shook time.Duration) bool {
	t := k.timeout
	return k.Retained() && k.writeTook > t/10 && now.Sub(upAt) > k.writeTook && k.end(true).Sub(now) > shook+k.writeTook &&
		k.prospect(now).Sub(now) < k.writeTook+max(k.beatEvery(), shook)+t/lookPart
}

// maxStalls bounds how often patience doubles.
const maxStalls = 4

// Patience bounds the wait for a connected server's reply before another server is tried. It begins
// with a quarter of the timeout, or less if a holder needs time to reach another server while its
// lease lasts, and is longer than the latest write took. If the connection before was given up for
// silence too, and the leader has answered nothing promptly since, the server is not to blame:
// writes take that long on every server. So patience doubles each time, up to half the timeout
// while the session is retained, which leaves time for another server, and else up to three
// quarters, since the session itself would end.
func (k *Keeper) Patience() time.Duration {
	t := cmp.Or(k.timeout, k.asked)
	most := t - t/4
	if k.Retained() {
		most = t / 2
	}
	least := k.prompt()
	return max(least, min(max(least<<k.stalls, k.writeTook+k.writeTook/4), most))
}

// prompt returns how long a reply takes at most when all is well.
func (k *Keeper) prompt() time.Duration {
	limit := firstPatience(cmp.Or(k.timeout, k.asked))
	if k.Retained() {
		limit = min(limit, max(k.steady()-k.timeout/retainedPingPart, k.timeout/10))
	}
	return limit
}

func firstPatience(timeout time.Duration) time.Duration { return max(timeout/4, 100*time.Millisecond) }
