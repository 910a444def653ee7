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

// sessions are the ZooKeeper sessions of a Client, since one has room for so many ephemeral znodes only
// (session.Config.EphemeralBytes):
//
//	first    is what Client.Session returns: when it has ended the next one takes its place, until the Client is closed.
//	further  are opened when no session has room for a call's znodes. One that has ended is not replaced. One that has had
//	         no ephemeral znode for furtherIdle, and so no hold and no wait, is closed: Retire keeps calls from it then.
//
// A call takes the first session that has room, so that further ones empty when there is less to do. The room is taken
// by the create itself: when others were quicker, the call chooses again.
type sessions struct {
	c      *Client
	chroot int // the length of the connect string's

	joined chan struct{} // closed when keep has ended

	mu      sync.Mutex // guards what follows; taken outside Client.mu and ephemerals.mu
	first   *session.Session
	further []*session.Session // in the order in which they were opened; one that has ended, until tend takes it out
	changed chan struct{}      // closed when any of these has changed
}

const (
	maxSessions = 32          // of a Client: servers take 60 connections from one address by default
	furtherIdle = time.Minute // how long a further session stays without an ephemeral znode
	pickAgain   = time.Second // how often a call that waits for a session to be established looks for another one
)

// newSessions starts the first session. Errors are those of start.
func newSessions(c *Client) (p *sessions, err error) {
	p = &sessions{c: c, joined: make(chan struct{}), changed: make(chan struct{})}
	if p.first, err = p.start(); err != nil {
		return nil, err
	}
	_, chroot, _ := session.ParseConnect(c.connect) // which start has accepted
	p.chroot = len(chroot)
	go p.keep(p.first)
	return p, nil
}

// start starts a session. An error is of the connect string or of an option; no I/O has been done.
func (p *sessions) start() (*session.Session, error) {
	conf := p.c.opts.session
	if hook := p.c.opts.hooks.Session; hook != nil {
		conf.OnState = func(ch session.Change) { hook(SessionInfo(ch)) }
	}
	return session.Start(p.c.connect, conf)
}

// keep replaces the first session whenever it has ended, until Close, which joins it. The old one is joined in the
// background, since what still runs in it may be a hook that asks for the next.
func (p *sessions) keep(s *session.Session) {
	defer close(p.joined)
	var old sync.WaitGroup
	defer old.Wait()
	for {
		began := time.Now()
		select {
		case <-s.Done():
		case <-p.c.ctx.Done():
		}
		ended := s
		old.Go(func() { _ = ended.Close() }) // always nil; its own end, when it had one, stays its cause
		if p.c.ctx.Err() != nil || !p.rested(began) {
			return
		}
		fresh, err := p.start()
		if err != nil { // checked when we dialled, and no I/O is done
			p.c.log.Error("opening the next session", "error", err)
			return
		}
		p.change(func() { p.first = fresh })
		s = fresh
	}
}

// tend looks after a further session until it has ended, is not used any more, or the Client is closed, which joins it.
func (p *sessions) tend(s *session.Session) {
	began := time.Now()
	look := time.NewTicker(furtherIdle / 4)
	defer look.Stop()
	for over := false; !over; {
		select {
		case <-s.Done():
			over = true
			p.rested(began)
		case <-p.c.ctx.Done():
			over = true
		case <-look.C:
			over = s.ForLocks(trusted.Caller{}).Retire(furtherIdle)
		}
	}
	p.change(func() { p.further = slices.DeleteFunc(p.further, func(f *session.Session) bool { return f == s }) })
	_ = s.Close() // always nil
}

// rested waits a little if a session that began then has ended at once, against a storm. False: the Client was closed.
func (p *sessions) rested(began time.Time) bool {
	if time.Since(began) >= time.Second {
		return true
	}
	p.c.rest(p.c.ctx, 500*time.Millisecond+jitter.Below(500*time.Millisecond))
	return p.c.ctx.Err() == nil
}

// change makes a change and wakes the calls that wait for one.
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
	return p.first
}

func (p *sessions) all() []*session.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*session.Session{p.first}, p.further...)
}

// room is what znodes with contenders' names below paths may take of a session.
func (p *sessions) room(paths ...string) (n int) {
	for _, path := range paths {
		n += p.chroot + len(path) + 1 + nameRoom + 4
	}
	return n
}

// await returns the session that pick returns, once it is established. Pick returns nil to be called again after the
// next change. It is called again from time to time while its session is not established: another one may have room by then.
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
			bounded, cancel := context.WithTimeout(ctx, pickAgain)
			if err = s.Established(bounded); err == nil {
				err = s.Err()
			}
			late := bounded.Err() != nil
			cancel()
			switch {
			case err == nil:
				return s, nil
			case late && ctx.Err() == nil:
				continue
			case late:
				if err = s.Established(ctx); err == nil { // else it says for which ctx, and why
					return s, nil // it was established meanwhile
				}
			}
			if ctx.Err() != nil || errors.Is(err, session.ErrAuth) { // waiting would not help
				return nil, err
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
// soon. A call that needs more than any session has gets an empty one, and is refused by that.
func (p *sessions) choose(room int) (*session.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	soon := false
	for _, s := range append([]*session.Session{p.first}, p.further...) {
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
	if n := 1 + len(p.further); n >= maxSessions {
		return nil, fmt.Errorf("%w: the %d sessions of this client are full (WithEphemeralBytes), and it opens no more", ErrNoRoom, n)
	}
	s, err := p.start()
	if err != nil {
		return nil, err
	}
	if !p.c.spawn(func() { p.tend(s) }) {
		s.ForLocks(trusted.Caller{}).Abandon()
		return nil, closedError{}
	}
	p.further = append(p.further, s)
	return s, nil
}
