package zklock

import (
	"context"
	"time"

	"github.com/zklock/locker/session"
)

// company is what a process that holds a lock knows of others who want it.
type company int

const (
	unknown company = iota // it has not looked yet
	alone                  // nobody else is in line; it would hear of one who comes
	crowded                // somebody is, or nobody can tell
)

// tenure is a place that is first in line, for as long as this process has it. It is what its holds stand on: their
// Leave hands it on, keeps it, or gives it up.
type tenure struct {
	l      *line
	s      *session.Session
	keep   *session.Retention // until drop
	ticket place
	nodes  []string // its path

	ctx    context.Context // ends with the tenure, and with the session
	cancel context.CancelFunc
	want   chan struct{} // closed when it is worth looking for others
	timer  *time.Timer   // of the idle time; nil when it is not kept

	// Guarded by l.mu.
	held    bool  // somebody has it, or is being given it
	cur     *grip // who, once it has attached itself
	over    bool  // it will not be handed on any more
	cause   error // why, when over
	dropped bool
	wanted  bool // want is closed
	retired bool // it has to go at the next Leave
	others  company
	left    int       // how often it may still be handed on unless alone
	until   time.Time // and until when, once crowded
	idle    time.Time // since when it is kept; zero while somebody has it
	timing  bool      // the timer runs
}

// begin makes the tenure of a place that is first in line and whose session is retained. Its goroutine is tend; the
// caller starts it, and sees to its first holder. The caller holds mu.
func (l *line) begin(p place, keep *session.Retention) *tenure {
	t := &tenure{l: l, s: p.Session(), keep: keep, ticket: p, nodes: p.Nodes(), want: make(chan struct{}), left: l.b.o.handoff}
	t.ctx, t.cancel = context.WithCancel(t.s.Context())
	if l.b.o.keep > 0 {
		t.timer = time.NewTimer(l.b.o.keep)
		t.timer.Stop()
		t.look() // it will be kept, mostly
	}
	keep.OnMissing(func(string) { t.gone() })
	l.t = t
	return t
}

// look has tend watch for others. The caller holds mu.
func (t *tenure) look() {
	if !t.wanted {
		t.wanted = true
		close(t.want)
	}
}

// may reports whether the tenure may be handed on, as far as is known now. The caller holds mu.
func (t *tenure) may() bool {
	return t.others == alone || t.left > 0
}

// count counts a hand-over and reports whether it was against the limit. The caller holds mu.
func (t *tenure) count() bool {
	if t.others == alone {
		return false
	}
	t.left--
	return true
}

// take notes that somebody has it from now on. The caller holds mu.
func (t *tenure) take() { t.held, t.idle = true, time.Time{} }

// give makes the first waiter the holder. The caller holds mu.
func (t *tenure) give(counted bool) {
	t.take()
	if t.l.first.next != nil {
		t.look()
	}
	t.l.give(grant{t: t, counted: counted})
}

// next decides what becomes of a tenure that nobody has. True: it is over, and the caller has to drop it and delete the
// znode. The caller holds mu.
func (t *tenure) next() (leave bool) {
	waiting := t.l.first != nil
	switch {
	case t.over:
		return false // whoever ended it sees to that
	case t.retired,
		t.others == crowded && (t.left == 0 || !waiting || !time.Now().Before(t.until)),
		!waiting && t.timer == nil:
		t.seal(ErrUnlocked)
		return true
	case waiting && t.may():
		t.give(t.count())
	case waiting: // it is not known whether others wait: tend finds out
		t.look()
	default:
		if t.idle.IsZero() {
			t.idle = time.Now()
		}
		if !t.timing {
			t.timing = true
			t.timer.Reset(t.l.b.o.keep)
		}
	}
	return false
}

// seal ends the tenure for whoever would have it next. The caller holds mu.
func (t *tenure) seal(cause error) {
	if !t.over {
		t.over, t.cause = true, cause
	}
}

// drop takes a tenure that is over out of its line, so that those who wait there queue anew. The caller holds mu.
func (t *tenure) drop() {
	if t.dropped {
		return
	}
	t.dropped = true
	t.cancel()
	t.keep.Release()
	t.l.t = nil
	t.l.advance()
}

// detach is drop for a caller that does not hold mu.
func (t *tenure) detach() {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	t.drop()
}

// lose ends a tenure that was lost, and the hold on it, if there is one: that first, before anybody else can get the
// lock, here or elsewhere.
func (t *tenure) lose(cause error) {
	t.l.mu.Lock()
	if t.over {
		t.l.mu.Unlock()
		return
	}
	t.seal(cause)
	g := t.cur
	t.l.mu.Unlock()
	if g != nil {
		g.end(cause)
	}
	t.detach()
}

// attach makes g the one that ends with the tenure. Should that be over already, g ends now.
func (t *tenure) attach(g *grip) {
	t.l.mu.Lock()
	over, cause := t.over, t.cause
	if !over {
		t.cur = g
	}
	t.l.mu.Unlock()
	if over {
		g.end(cause)
	}
}

// good reports whether the tenure, which was given to a waiter, is still there, and its session's lease with it: time may
// have passed since. If not, it is over.
func (t *tenure) good(counted bool) bool {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	if !t.over {
		err := t.s.Alive()
		if err == nil {
			return true
		}
		t.seal(err)
		t.held = false
		t.drop()
	}
	return false
}

// lostBy is why a tenure is over.
func (t *tenure) lostBy() error {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	return t.cause
}

// decline hands on what a waiter was given that does not want it any more: it was no hold, and does not count.
func (t *tenure) decline(ctx context.Context, counted bool) {
	t.l.mu.Lock()
	if counted {
		t.left++
	}
	t.held = false
	leave := t.next()
	t.l.mu.Unlock()
	if leave {
		t.giveUp(ctx)
	}
}

// giveUp deletes the znode of a tenure that was sealed. The znode goes first: whoever waits outside shall not have to wait
// for those here, who queue anew only then.
func (t *tenure) giveUp(ctx context.Context) {
	t.l.c.giveUp(ctx, t.ticket)
	t.detach()
}

// retire has the coming Leave give the znode up.
func (t *tenure) retire() {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	t.retired = true
}

// Leave ends a hold: the tenure goes to the next who waits here, or is kept, or its znode is deleted. Nil: so it is.
// Errors are those of recipe.Ticket.Leave.
func (t *tenure) Leave(ctx context.Context) error {
	t.l.mu.Lock()
	t.held, t.cur = false, nil
	over := t.over
	leave := t.next()
	t.l.mu.Unlock()
	if !leave && !over {
		return nil
	}
	err := t.ticket.Leave(ctx)
	if leave { // after the znode: see giveUp
		t.detach()
	}
	return err
}

// Forfeit makes the coming Leave count as a loss: see recipe.Ticket.Forfeit. The tenure is over by then.
func (t *tenure) Forfeit() { t.ticket.Forfeit() }

// Session returns the session that owns the znode.
func (t *tenure) Session() *session.Session { return t.s }

// Nodes returns the path of the znode.
func (t *tenure) Nodes() []string { return t.nodes }

// Czxid returns the zxid of the znode's create: the token of all holds of the tenure.
func (t *tenure) Czxid() int64 { return t.ticket.Czxid() }

// Claim has been made for the znode, when the tenure began.
func (t *tenure) Claim(context.Context, time.Duration, bool) error { return nil }

// OnGone is never called: attach takes its place.
func (t *tenure) OnGone(context.Context, func()) error { return nil }

// Settled reports that the znode is looked after.
func (t *tenure) Settled() bool { return true }

// Gone is for those who take the place, before the tenure begins.
func (t *tenure) Gone() bool { return false }
