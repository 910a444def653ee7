package peers

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/zklock/locker/internal/bench/load"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// ours is this library, by default without options.
type ours struct {
	local bool
}

type ourClient struct {
	ours
	c *zklock.Client
}

func (o ours) Open(ctx context.Context, server string, timeout time.Duration) (load.Client, error) {
	c, err := zklock.Dial(ctx, server, zklock.WithSessionTimeout(timeout))
	if err != nil {
		return nil, err
	}
	return ourClient{o, c}, nil
}

func (c ourClient) Close() error { return c.c.Close() }

func (c ourClient) Locker(_ context.Context, path string, _ bool) (load.Locker, error) {
	var opts []zklock.LockOption
	if c.local {
		opts = append(opts, zklock.WithLocalHandoff())
	}
	return &ourLock{m: c.c.Mutex(path, opts...)}, nil
}

type ourLock struct {
	m *zklock.Mutex
	h *zklock.Hold
}

func (l *ourLock) Lock(ctx context.Context) (err error) {
	l.h, err = l.m.Lock(ctx)
	return err
}

func (l *ourLock) Unlock(ctx context.Context) error { return l.h.Unlock(ctx) }

// rawSession is the floor on this library's sessions; with list, it also lists the contenders after each create, as
// every lock must.
type rawSession struct{ list bool }

type rawSessionClient struct {
	rawSession
	s *session.Session
}

func (r rawSession) Open(ctx context.Context, server string, timeout time.Duration) (load.Client, error) {
	s, err := session.Open(ctx, server, session.Config{Timeout: timeout})
	if err != nil {
		return nil, err
	}
	return rawSessionClient{r, s}, nil
}

func (c rawSessionClient) Close() error { return c.s.Close() }

func (c rawSessionClient) Locker(ctx context.Context, path string, _ bool) (load.Locker, error) {
	if err := c.s.CreateAll(ctx, path, nil, session.Persistent, session.WorldACL()); err != nil {
		return nil, err
	}
	return &rawOnSession{rawSession: c.rawSession, s: c.s, path: path + "/" + strings.Repeat("x", nameLen)}, nil
}

type rawOnSession struct {
	rawSession
	s         *session.Session
	path, own string
}

func (r *rawOnSession) Lock(ctx context.Context) error {
	if r.list {
		b := r.s.Batch()
		made := b.Create(r.path, data, session.EphemeralSequential, session.WorldACL())
		b.List(path.Dir(r.path))
		err := b.Do(ctx)
		r.own = made.Value.Path
		return err
	}
	made, err := r.s.Create(ctx, r.path, data, session.EphemeralSequential, session.WorldACL())
	r.own = made.Path
	return err
}

func (r *rawOnSession) Unlock(ctx context.Context) error { return r.s.Delete(ctx, r.own, -1) }
