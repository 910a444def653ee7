package peers

import (
	"context"
	"time"

	"github.com/zklock/locker/tests/bench/load"
	"github.com/zklock/locker/zklock"
)

// ours is this library, with these options.
type ours []zklock.LockOption

type ourClient struct {
	*zklock.Client
	opts ours
}

func (o ours) Open(ctx context.Context, server string, timeout time.Duration) (load.Client, error) {
	c, err := zklock.Dial(ctx, server, zklock.WithSessionTimeout(timeout))
	if err != nil {
		return nil, err
	}
	return ourClient{c, o}, nil
}

func (c ourClient) Locker(_ context.Context, path string, _ bool) (load.Locker, error) {
	return &ourLock{m: c.Mutex(path, c.opts...)}, nil
}

type ourLock struct {
	m *zklock.Mutex
	h *zklock.Hold
}

func (l *ourLock) Lock(ctx context.Context) (err error) {
	_, l.h, err = l.m.Lock(ctx)
	return err
}

func (l *ourLock) Unlock(ctx context.Context) error { return l.h.Unlock() }
