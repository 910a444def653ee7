package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zklock/locker/internal/jitter"
	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// sessions are the ZooKeeper sessions of a Client, each with room for a limited number of ephemeral znodes
// (session.Config.EphemeralBytes):
//
//	first    is what Client.Session returns: when it has ended the next one takes its place, until the Client is closed.
//	further  are opened when no session has room for a call's znodes. One that has ended is not replaced. One that has had
//	         no ephemeral znode for furtherIdle is closed: Retire keeps calls from it then.
//
// A call takes the first session that has room, so that further ones empty when there is less to do. The create itself
// takes the room: if other calls were quicker, the call chooses again.
type sessions struct {
	c      *Client
	chroot int // the length of the connect string's

	mu sync.Mutex // guards what follows; taken outside Client.mu and ephemerals.mu
	// The first one, and further ones as they were opened. An ended one stays until keep replaces or tend removes it.
	open    []*session.Session
	changed chan struct{} // closed when open has changed
}

const (
	maxSessions = 32          // of a Client: servers take 60 connections from one address by default
	furtherIdle = time.Minute // how long a further session stays without an ephemeral znode
	pickAgain   = time.Second // how often a call that waits for a session to be established looks for another one
)

// newSessions starts the first session. An error is of the connect string or of an option; no I/O has been done.
func newSessions(c *Client) (*sessions, error) {
	first, err := session.Start(c.connect, c.opts.session)
	if err != nil {
		return nil, err
	}
	_, chroot, _ := session.ParseConnect(c.connect) // which Start has accepted
	p := &sessions{c: c, chroot: len(chroot), open: []*session.Session{first}, changed: make(chan struct{})}
	c.spawn(p.keep)
	return p, nil
}

// keep replaces the first session whenever it has ended, until Close, which joins it. The old one is closed in the
// background: its hook may wait for the next.
func (p *sessions) keep() {
	for {
		s, began := p.current(), time.Now()
		select {
		case <-s.Done():
		case <-p.c.ctx.Done():
		}
		p.c.ends.Go(func() { _ = s.Close() }) // always nil; its own end, when it had one, stays its cause
		if !p.rested(began) {
			return
		}
		fresh, err := session.Start(p.c.connect, p.c.opts.session)
		if err != nil { // checked when we dialled, and no I/O is done
			p.c.log.Error("opening the next session", "error", err)
			return
		}
		p.change(func() { p.open[0] = fresh })
	}
}

// tend looks after a further session until it has ended, is not used any more, or the Client is closed, which joins it.
func (p *sessions) tend(s *session.Session) {
	began := time.Now()
	for over := false; !over; {
		select {
		case <-s.Done():
			over = true
			p.rested(began)
		case <-p.c.ctx.Done():
			over = true
		case <-time.After(furtherIdle / 4):
			over = s.ForLocks(trusted.Caller{}).Retire(furtherIdle)
		}
	}
	p.change(func() { p.open = slices.DeleteFunc(p.open, func(o *session.Session) bool { return o == s }) })
	_ = s.Close() // always nil
}

// rested waits a little if the session that began then ended at once. False: the Client was closed.
func (p *sessions) rested(began time.Time) bool {
	if time.Since(began) < time.Second {
		p.c.rest(p.c.ctx, 500*time.Millisecond+jitter.Below(500*time.Millisecond))
	}
	return p.c.ctx.Err() == nil
}

// change calls do with mu held, and wakes the calls that wait for a change.
func (p *sessions) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *sessions) current() *session.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[0]
}

func (p *sessions) all() []*session.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.open)
}

// room is what znodes with contenders' names below paths may take of a session.
func (p *sessions) room(paths ...string) (n int) {
	for _, path := range paths {
		n += p.chroot + len(path) + 1 + nameRoom + 4
	}
	return n
}

// await returns the session that pick returns, once it is established. If pick returns nil, it is called again after the
// next change. While its session is not established, it is called every pickAgain: another may have room by then.
func (p *sessions) await(ctx context.Context, pick func() (*session.Session, error)) (*session.Session, error) {
	for {
		if p.c.ctx.Err() != nil {
			return nil, closedError{}
		}
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		s, err := pick()
		if err != nil {
			return nil, err
		}
		if s != nil {
			if at := s.State(); at == session.Connected || at == session.Disconnected {
				return s, nil
			}
			over := ctx.Err() != nil // before the wait: then the wait's error, which says why, is the result
			bounded, cancel := context.WithTimeout(ctx, pickAgain)
			err = s.Established(bounded)
			cancel()
			switch {
			case err != nil && (over || errors.Is(err, session.ErrAuth)): // waiting would not help
				return nil, err
			case s.Err() == nil: // it is established by now, or not yet, or ctx is over
				continue
			}
		}
		select {
		case <-changed:
		case <-p.c.ctx.Done():
		case <-ctx.Done():
			return nil, session.Waited(ctx, trusted.Caller{}, errors.New("waiting for the next session"))
		}
	}
}

// choose returns a session that has room for so many bytes of paths, and opens one if there is none. Nil: there will be one
// soon. A call that needs more room than any session has gets an empty session, which refuses it.
func (p *sessions) choose(room int) (*session.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	soon := false
	for _, s := range p.open {
		switch {
		case s.Err() != nil:
			soon = true // it is about to be replaced, or to make way
		case s.ForLocks(trusted.Caller{}).HasRoom(room):
			return s, nil
		}
	}
	if soon {
		return nil, nil
	}
	if n := len(p.open); n >= maxSessions {
		return nil, fmt.Errorf("%w: the %d sessions of this client are full (WithEphemeralBytes), and it opens no more", ErrNoRoom, n)
	}
	s, err := session.Start(p.c.connect, p.c.opts.session)
	if err != nil {
		return nil, err
	}
	if !p.c.spawn(func() { p.tend(s) }) {
		s.ForLocks(trusted.Caller{}).Abandon()
		return nil, closedError{}
	}
	p.open = append(p.open, s)
	return s, nil
}
