// Package zklock has the shapes of the real one.
package zklock

import (
	"context"
	"errors"
)

var ErrBusy = errors.New("busy")

type (
	Mutex     struct{}
	RWMutex   struct{}
	MultiLock struct{}
	Semaphore struct{}
	Job       struct{}
	Hold      struct{}
	JobRun    struct{}
)

func (*Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) error { return nil }
func (*Mutex) TryDo(ctx context.Context, fn func(ctx context.Context) error) (bool, error) {
	return false, nil
}
func (*Mutex) Lock(ctx context.Context) (context.Context, *Hold, error)    { return ctx, nil, nil }
func (*Mutex) TryLock(ctx context.Context) (context.Context, *Hold, error) { return ctx, nil, nil }
func (*RWMutex) TryDo(ctx context.Context, fn func(ctx context.Context) error) (bool, error) {
	return false, nil
}
func (*RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error) error { return nil }
func (*RWMutex) TryRDo(ctx context.Context, fn func(ctx context.Context) error) (bool, error) {
	return false, nil
}
func (*RWMutex) TryRLock(ctx context.Context) (context.Context, *Hold, error) { return ctx, nil, nil }
func (*MultiLock) TryDo(ctx context.Context, fn func(ctx context.Context) error) (bool, error) {
	return false, nil
}
func (*Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) error {
	return nil
}
func (*Semaphore) TryDo(ctx context.Context, n int, fn func(ctx context.Context) error) (bool, error) {
	return false, nil
}
func (*Semaphore) Acquire(ctx context.Context, n int) (context.Context, *Hold, error) {
	return ctx, nil, nil
}
func (j *Job) AtMostOnce() *Job { return j }
func (*Job) Once(context.Context, string, func(ctx context.Context) error) (JobRun, error) {
	return JobRun{}, nil
}
func (*Hold) Unlock() error                   { return nil }
func (*Hold) Err() error                      { return nil }
func (*Hold) Context() context.Context        { return nil }
func (*Hold) Multi(ctx context.Context) error { return nil }
