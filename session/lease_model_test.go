package session_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
)

// world is a little model of what stands behind a session: a client, the follower that it is connected to, the leader
// that counts, and the two ordered streams between them. The follower answers pings by itself and reports the sessions
// that it has heard of at most a tick apart; it may be cut off from the leader at any time. Nothing is as it is in
// session: no driver, no marks, only who knows what when.
type world struct {
	rng  *rand.Rand
	now  time.Duration // true time
	rate float64       // of the client's clock

	timeout, tick time.Duration
	lease         session.Lease

	events []event

	expiry  time.Duration // the leader's
	expired bool

	touched bool // the follower has heard of the session since its last report
	cut     bool
	held    []func() // what waits at the cut, in order
	link    int      // the client's connection; what belongs to an older one is void

	lastUp, lastReply, lastDown, lastBack time.Duration // streams are in order: nothing arrives before what was sent before it

	requests []*request // unanswered, in order

	begun            bool // the session exists
	advanced, unsafe bool // the lease moved on; plain acknowledgements outlived the leader's patience
}

type event struct {
	at time.Duration
	do func()
}

type request struct {
	sent     time.Time // by the client's clock
	leader   bool
	answered bool
}

// upTo is a random time below d.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

func (w *world) after(d time.Duration, do func()) {
	w.events = append(w.events, event{w.now + d, do})
}

// stream lets do happen after a random delay, but not before what went the same way earlier.
func (w *world) stream(last *time.Duration, most time.Duration, do func()) {
	*last = max(*last, w.now+w.upTo(most+1))
	w.events = append(w.events, event{*last, do})
}

func (w *world) step() bool {
	if len(w.events) == 0 {
		return false
	}
	first := 0
	for i, e := range w.events { // the earliest, and of those the one that was entered first
		if e.at < w.events[first].at {
			first = i
		}
	}
	e := w.events[first]
	w.events = slices.Delete(w.events, first, first+1)
	w.now = e.at
	if !w.expired && w.now >= w.expiry {
		w.expired = true
	}
	e.do()
	return true
}

func (w *world) clientNow() time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(float64(w.now) * w.rate))
}

// toLeader carries what the follower says to the leader, in order; at a cut it waits.
func (w *world) toLeader(do func()) {
	w.stream(&w.lastDown, 20*time.Millisecond, func() {
		if w.cut {
			w.held = append(w.held, do)
			return
		}
		do()
	})
}

func (w *world) touch() {
	if !w.expired {
		w.expiry = w.now + w.timeout // the leader's own granularity only makes it later
	}
}

// report is the follower's, at most a tick apart by whoever's clock.
func (w *world) report() {
	if w.touched {
		w.touched = false
		w.toLeader(w.touch)
	}
	longest := time.Duration(float64(w.tick) * min(1, 1/w.rate))
	w.after(longest/4+w.upTo(longest*3/4), w.report)
}

// ask sends a request of the client's: a ping, or one that goes through the leader.
func (w *world) ask() {
	w.after(10*time.Millisecond+w.upTo(w.timeout/6), w.ask)
	if len(w.requests) > 8 {
		return // the follower hangs; the client waits
	}
	r := &request{sent: w.clientNow(), leader: w.rng.IntN(3) == 0}
	w.requests = append(w.requests, r)
	link := w.link
	w.stream(&w.lastUp, 50*time.Millisecond, func() {
		if w.link != link {
			return
		}
		w.touched = true
		if !r.leader {
			r.answered = true
			w.deliver(link)
			return
		}
		w.toLeader(func() {
			if w.expired {
				return // refused; the client is told, which ends the matter
			}
			w.stream(&w.lastBack, 20*time.Millisecond, func() {
				if w.link == link {
					r.answered = true
					w.deliver(link)
				}
			})
		})
	})
}

// deliver sends the replies that are due; a connection's replies are in the order of its requests.
func (w *world) deliver(link int) {
	for len(w.requests) > 0 && w.requests[0].answered {
		r := w.requests[0]
		w.requests = w.requests[1:]
		w.stream(&w.lastReply, 50*time.Millisecond, func() {
			if w.link != link {
				return
			}
			before := w.lease.Confirmed()
			w.lease.Ack(r.sent, w.clientNow(), r.leader)
			w.advanced = w.advanced || w.lease.Confirmed().After(before)
		})
	}
}

// connect is a handshake: the leader validates the session.
func (w *world) connect() {
	w.link++
	link := w.link
	w.requests = nil
	sent := w.clientNow()
	w.after(w.upTo(50*time.Millisecond), func() {
		if w.expired || w.link != link {
			return
		}
		w.touch()
		w.after(w.upTo(50*time.Millisecond), func() {
			switch {
			case w.link != link:
			case w.begun:
				w.lease.Resume(sent, w.clientNow(), w.timeout, w.tick)
			default:
				w.begun = true
				w.lease.Begin(sent, w.timeout, w.tick)
			}
		})
	})
}

// trouble cuts the follower off, and later either heals the cut or has the client go elsewhere.
func (w *world) trouble() {
	if w.cut {
		w.cut = false
		held := w.held
		w.held = nil
		if w.rng.IntN(2) == 0 {
			for _, do := range held {
				do()
			}
		} else { // the follower starts anew: what it had not passed on is lost, and its clients go elsewhere
			w.touched = false
			w.connect()
		}
	} else {
		w.cut = true
	}
	w.after(w.upTo(2*w.timeout), w.trouble)
}

// check holds the lease against the leader's knowledge.
func (w *world) check() error {
	safe := time.Duration(float64(w.lease.SafeUntil().Sub(time.Unix(1_000_000, 0))) / w.rate) // true time
	if safe > w.expiry+time.Microsecond {
		return fmt.Errorf("at %v the lease is said to be safe until %v, and the leader ends the session at %v", w.now, safe, w.expiry)
	}
	if n := w.lease.Marks(); n > session.MaxMarks {
		return fmt.Errorf("%d marks", n)
	}
	idle := time.Duration(float64(w.lease.Acked().Sub(time.Unix(1_000_000, 0))) / w.rate)
	w.unsafe = w.unsafe || idle > w.expiry+w.timeout/10
	return nil
}

func TestTheLeaseNeverOutlivesTheLeadersPatience(t *testing.T) {
	runs := 1000
	if testing.Short() {
		runs = 200
	}
	advanced, unsafe := 0, 0
	for run := range runs {
		rng := rand.New(rand.NewPCG(uint64(run), 42))
		w := &world{rng: rng, rate: 1, timeout: time.Duration(4+rng.IntN(16)) * time.Second, tick: 2 * time.Second}
		switch rng.IntN(3) { // clocks may differ by two per cent
		case 0:
			w.rate = 0.98
		case 1:
			w.rate = 1.02
		}
		w.expiry = w.timeout
		w.connect()
		w.after(0, w.ask)
		w.after(0, w.report)
		w.after(w.upTo(3*w.timeout), w.trouble)
		for w.step() && !w.expired && w.now < 20*w.timeout {
			require.NoError(t, w.check(), "run %d, timeout %v, clock rate %v", run, w.timeout, w.rate)
		}
		if w.expired { // the client goes on for a while without knowing
			for end := w.now + w.timeout; w.step() && w.now < end; {
				require.NoError(t, w.check(), "run %d, after the end, timeout %v, clock rate %v", run, w.timeout, w.rate)
			}
		}
		if w.advanced {
			advanced++
		}
		if w.unsafe {
			unsafe++
		}
	}
	require.Greater(t, advanced, runs*3/4, "runs in which the lease moved on: else this test shows nothing")
	require.Greater(t, unsafe, runs/10, "runs in which plain acknowledgements outlived the leader's count: else the cut-offs are too kind")
}
