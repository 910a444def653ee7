package lease_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/lease"
)

// world is a small model of a session's environment: a client, the server that it is connected to,
// the leader, which expires sessions, and ordered streams between them. The server answers pings by
// itself. Every half tick the leader asks it to report the sessions that it has heard from; an
// observer behind another observer reports to that one, which passes the report on when it is asked
// itself. The server may be cut off from the leader at any time. The model shares nothing with
// package session: no driver, no spans, only what each party knows and when.
//
// A session may be local, known only to its server, until the first write makes it global. A server
// to which the client reconnects may grant a shorter timeout, and its answer may be lost. The
// leader may stall.
type world struct {
	rng  *rand.Rand
	now  time.Duration // true time
	rate float64       // speed of the client's clock

	timeout, tick time.Duration
	lease         lease.Lease

	events []event

	expiry  time.Duration // the leader's
	expired bool

	touched bool          // the server has heard from the session since its last report
	behind  bool          // it is an observer behind an observer
	passing bool          // and that one has heard from the session since its own last report
	local   bool          // local: the leader does not know the session yet
	low     time.Duration // the longest timeout that some servers grant; 0: all grant the same
	granted time.Duration // on this connection
	stalled bool          // until then the leader stalls
	waiting []func()      // what has arrived at the leader meanwhile
	unasked []func()      // the reports that it would have requested
	cut     bool
	held    []func() // what waits at the cut, in order
	link    int      // the client's connection; messages of an older one are void

	// the latest arrival of each stream: messages of a stream arrive in order
	lastUp, lastReply, lastDown, lastBack time.Duration

	requests []*request // unanswered, in order

	begun            bool // the session exists
	wasLocal, stalls bool // for the report
	// whether the lease was prolonged; whether unconfirmed acknowledgements would have outlasted
	// the session
	advanced, unsafe bool
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

// upTo returns a random duration below d.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

func (w *world) after(d time.Duration, do func()) {
	w.events = append(w.events, event{w.now + d, do})
}

// stream runs do after a random delay, and after everything that the same stream carried before.
func (w *world) stream(last *time.Duration, most time.Duration, do func()) {
	*last = max(*last, w.now+w.upTo(most+1))
	w.events = append(w.events, event{*last, do})
}

func (w *world) step() bool {
	if len(w.events) == 0 {
		return false
	}
	first := 0
	for i, e := range w.events { // the earliest; of several the one that was added first
		if e.at < w.events[first].at {
			first = i
		}
	}
	e := w.events[first]
	w.events = slices.Delete(w.events, first, first+1)
	w.now = e.at
	if !w.expired && !w.stalled && !w.local && w.now >= w.expiry {
		w.expired = true
	}
	e.do()
	return true
}

func (w *world) clientNow() time.Time { return w.clientAt(w.now) }

// clientAt is what the client's clock shows at a true time.
func (w *world) clientAt(now time.Duration) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(float64(now) * w.rate))
}

// toLeader carries a message from the follower to the leader, in order; while they are cut off it
// waits.
func (w *world) toLeader(do func()) {
	w.stream(&w.lastDown, 20*time.Millisecond, func() {
		switch {
		case w.cut:
			w.held = append(w.held, do)
		case w.stalled:
			w.waiting = append(w.waiting, do)
		default:
			do()
		}
	})
}

// touch is the effect of a report, which has the timeout of the server's connection.
func (w *world) touch(granted time.Duration) {
	if !w.expired && !w.local {
		w.expiry = w.now + granted // the leader's granularity can only make the end later
	}
}

// report is made when the leader asks, every half tick by the slower of the clocks.
func (w *world) report() {
	granted := w.granted
	if w.behind {
		if w.passing {
			w.passing = false
			w.toLeader(func() { w.touch(granted) })
		}
	} else if w.touched {
		w.touched = false
		w.toLeader(func() { w.touch(granted) })
	}
	w.asked(w.report)
}

// pass is an observer's report to the observer before it, which asks for it by its own clock.
func (w *world) pass() {
	if w.touched {
		w.touched, w.passing = false, true
	}
	w.after(w.halfTick(), w.pass)
}

func (w *world) halfTick() time.Duration {
	longest := time.Duration(float64(w.tick) / 2 * min(1, 1/w.rate))
	return longest*9/10 + w.upTo(longest/10)
}

// asked runs do when the leader next asks for reports, which it does not do while it stalls.
func (w *world) asked(do func()) {
	w.after(w.halfTick(), func() {
		if w.stalled {
			w.unasked = append(w.unasked, do)
			return
		}
		do()
	})
}

// stall stalls the leader, for no longer than two ticks, or half the timeout, exceed what a report
// takes without it.
func (w *world) stall() {
	longest := min(2*w.tick, w.least()/2) - w.tick/2 - 300*time.Millisecond
	if w.behind {
		longest -= w.tick / 2
	}
	if longest <= 0 {
		return
	}
	w.stalled = true
	w.after(w.upTo(longest), func() {
		w.stalled = false
		// messages that have arrived are handled before the reports that it requests now
		waiting := append(w.waiting, w.unasked...)
		w.waiting, w.unasked = nil, nil
		for _, do := range waiting {
			do()
		}
		w.after(w.upTo(4*w.timeout), w.stall)
	})
}

// least is the shortest timeout that a server grants.
func (w *world) least() time.Duration {
	if w.low > 0 {
		return w.low
	}
	return w.timeout
}

// ask sends a request of the client: a ping, or one that goes through the leader.
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
				return // refused: the client gets an error, and its session is over
			}
			if w.local { // a create makes it global
				w.local = false
				w.expiry = w.now + w.granted
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

// deliver sends the replies that are due. A connection's replies come in the order of its requests.
func (w *world) deliver(link int) {
	for len(w.requests) > 0 && w.requests[0].answered {
		r := w.requests[0]
		w.requests = w.requests[1:]
		w.stream(&w.lastReply, 50*time.Millisecond, func() {
			if w.link != link {
				return
			}
			before := w.lease.ConfirmedUntil()
			w.lease.Ack(r.sent, w.clientNow(), r.leader)
			w.advanced = w.advanced || w.lease.ConfirmedUntil().After(before)
		})
	}
}

// connect is a handshake: the leader validates the session.
func (w *world) connect() {
	w.link++
	link := w.link
	w.requests = nil
	sent := w.clientNow()
	granted := w.timeout
	if w.low > 0 && w.begun && w.rng.IntN(2) == 0 {
		granted = w.low
	}
	lost := w.begun && w.rng.IntN(3) == 0
	if w.begun {
		w.lease.Reattach(sent)
	}
	w.after(w.upTo(50*time.Millisecond), func() {
		if w.expired || w.link != link {
			return
		}
		w.granted = granted
		w.touched, w.passing = false, false // it is another server
		w.touch(granted)
		if lost { // and gives up after a while; another server may grant more
			w.after(w.upTo(w.timeout/6), func() {
				if w.link == link {
					w.lease.Unanswered(false)
					w.connect()
				}
			})
			return
		}
		w.after(w.upTo(50*time.Millisecond), func() {
			switch {
			case w.link != link:
			case w.begun:
				w.lease.Resume(sent, w.clientNow(), granted, w.tick)
			default:
				w.begun = true
				w.lease.Open(sent, w.clientNow(), granted, w.tick)
			}
		})
	})
}

// trouble cuts the follower off from the leader, and later heals that, or makes the client connect
// to another server.
func (w *world) trouble() {
	if w.cut {
		w.cut = false
		held := w.held
		w.held = nil
		if w.rng.IntN(2) == 0 {
			for _, do := range held {
				do()
			}
		} else {
			// the follower restarts: what it had not passed on is lost, and its clients reconnect
			// elsewhere
			w.touched, w.passing = false, false
			w.lease.Unanswered(false) // if it has not been answered yet
			w.connect()
		}
	} else {
		w.cut = true
	}
	w.after(w.upTo(2*w.timeout), w.trouble)
}

// check compares the lease with what the leader knows. It does so by the client's clock: the
// instants of a lease that has not begun are zero, and too far from the others for a time.Duration.
func (w *world) check() error {
	expiry := w.clientAt(w.expiry)
	if safe := w.lease.SafeUntil(); safe.After(expiry.Add(time.Microsecond)) {
		return fmt.Errorf("at %v the lease is said to be safe for %v "+
			"after the leader ends the session, at %v", w.now, safe.Sub(expiry), w.expiry)
	}
	if n := w.lease.Spans(); n > lease.MaxSpans {
		return fmt.Errorf("%d spans", n)
	}
	if w.local {
		return nil // it protects nothing yet
	}
	w.unsafe = w.unsafe || w.lease.AnsweredUntil().After(w.clientAt(w.expiry+w.timeout/10))
	return nil
}

func TestTheLeaseNeverOutlivesTheLeadersPatience(t *testing.T) {
	runs := 4000
	if testing.Short() {
		runs = 400
	}
	advanced, unsafe := 0, 0
	for run := range runs {
		rng := rand.New(rand.NewPCG(uint64(run), 42))
		w := &world{rng: rng, rate: 1, timeout: time.Duration(4+rng.IntN(16)) * time.Second,
			tick: 2 * time.Second}
		switch rng.IntN(3) { // clocks may differ by two per cent
		case 0:
			w.rate = 0.98
		case 1:
			w.rate = 1.02
		}
		if w.behind = rng.IntN(3) == 0; w.behind {
			w.after(0, w.pass)
		}
		if rng.IntN(3) == 0 {
			w.low = 2*w.tick + w.upTo(w.timeout-2*w.tick+1)
		}
		if rng.IntN(4) == 0 {
			w.stalls = true
			w.after(w.upTo(4*w.timeout), w.stall)
		}
		w.local = rng.IntN(4) == 0
		w.wasLocal = w.local
		w.granted, w.expiry = w.timeout, w.timeout
		w.connect()
		w.after(0, w.ask)
		w.after(0, w.report)
		w.after(w.upTo(3*w.timeout), w.trouble)
		for w.step() && !w.expired && w.now < 20*w.timeout {
			require.NoError(t, w.check(),
				"run %d, timeout %v, clock rate %v; behind another observer %v, local %v, lowest grant %v, stalls %v", run, w.timeout, w.rate, w.behind, w.wasLocal, w.low, w.stalls)
		}
		if w.expired { // the client goes on for a while, unaware of it
			for end := w.now + w.timeout; w.step() && w.now < end; {
				require.NoError(t, w.check(), "run %d, after the end, timeout %v, clock rate %v",
					run, w.timeout, w.rate)
			}
		}
		if w.advanced {
			advanced++
		}
		if w.unsafe {
			unsafe++
		}
	}
	require.Greater(t, advanced, runs*3/4,
		"runs in which the lease moved on: else this test shows nothing")
	require.Greater(t, unsafe, runs/10,
		"runs in which plain acknowledgements outlived the leader's count: else the cut-offs are too kind")
}
