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

// world is a little model of what stands behind a session: a client, the server that it is connected to, the leader
// that counts, and the ordered streams between them. The server answers pings by itself and reports the sessions that it
// has heard of when the leader asks, every half tick; an observer behind another one hands its reports to that, which
// hands them on when it is asked itself. It may be cut off from the leader at any time. Nothing is as it is in session: no
// driver, no marks, only who knows what when.
//
// A session may be local, known to its server alone, until the first write makes it global; a server that the client comes
// back to may grant less, and its answer be lost; and the leader may stand still.
type world struct {
	rng  *rand.Rand
	now  time.Duration // true time
	rate float64       // of the client's clock

	timeout, tick time.Duration
	lease         session.Lease

	events []event

	expiry  time.Duration // the leader's
	expired bool

	touched bool          // the server has heard of the session since its last report
	behind  bool          // it is an observer behind an observer
	passing bool          // and that has heard of the session since its own last report
	local   bool          // the leader does not know the session yet
	low     time.Duration // what some servers grant at most; 0: all grant the same
	granted time.Duration // on this connection
	stalled bool          // the leader stands still
	waiting []func()      // what has arrived there meanwhile
	unasked []func()      // what it would have asked for
	cut     bool
	held    []func() // what waits at the cut, in order
	link    int      // the client's connection; what belongs to an older one is void

	lastUp, lastReply, lastDown, lastBack time.Duration // streams are in order: nothing arrives before what was sent before it

	requests []*request // unanswered, in order

	begun            bool // the session exists
	wasLocal, stalls bool // for the report
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
	if !w.expired && !w.stalled && !w.local && w.now >= w.expiry {
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

// touch is a report's: it names the timeout of the connection that the server has.
func (w *world) touch(granted time.Duration) {
	if !w.expired && !w.local {
		w.expiry = w.now + granted // the leader's own granularity only makes it later
	}
}

// report is made when the leader asks, every half tick, by whose clock is the slower.
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

// pass is an observer's report to the one before it, which asks on its own account.
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

// asked lets do happen when the leader asks next: not while it stands still.
func (w *world) asked(do func()) {
	w.after(w.halfTick(), func() {
		if w.stalled {
			w.unasked = append(w.unasked, do)
			return
		}
		do()
	})
}

// stall has the leader stand still for as long as two ticks, or half the timeout, exceed what a report takes without.
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
		waiting := append(w.waiting, w.unasked...) // what had arrived comes before what it asks for now
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
		if lost { // and given up after a while; another server may grant more
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
			w.touched, w.passing = false, false
			w.lease.Unanswered(false) // if it had no answer yet
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
	if w.local {
		return nil // nothing is held by it yet
	}
	idle := time.Duration(float64(w.lease.Acked().Sub(time.Unix(1_000_000, 0))) / w.rate)
	w.unsafe = w.unsafe || idle > w.expiry+w.timeout/10
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
		w := &world{rng: rng, rate: 1, timeout: time.Duration(4+rng.IntN(16)) * time.Second, tick: 2 * time.Second}
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
			require.NoError(t, w.check(), "run %d, timeout %v, clock rate %v; behind another observer %v, local %v, lowest grant %v, stalls %v", run, w.timeout, w.rate, w.behind, w.wasLocal, w.low, w.stalls)
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
