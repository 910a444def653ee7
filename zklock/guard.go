package zklock

import (
	"context"
	"fmt"
)

// Guard returns fn with a lock around it: what an annotation on a method is elsewhere. For each call, path computes
// the lock's path from the argument, mostly with KeyPath; fn is called while the Mutex of that path is held, with a
// context that ends with the hold. Waiting and holding are bounded by options: WithWait, WithMaxHold. Calls of one
// process for one path share a place in line with WithLocalHandoff, and with WithIdleKeep the next call finds it there:
// both work across the calls of one guarded function, and of several with equal options.
//
// The returned function may be called concurrently. It returns fn's result, and an error as Mutex.Do does: nil, when fn
// has returned nil while the lock was held; one that matches ErrNotRun when the lock was not acquired. An error of path,
// and the empty path, are returned before any I/O (ErrPath), and match ErrNotRun as well.
func Guard[A, R any](c *Client, path func(A) (string, error), fn func(context.Context, A) (R, error), opts ...LockOption) func(context.Context, A) (R, error) {
	needFunction(path == nil || fn == nil)
	return func(ctx context.Context, arg A) (result R, err error) {
		p, err := path(arg)
		if err != nil {
			return result, notRunError{fmt.Errorf("zklock: guard: path of the argument: %w", err)}
		}
		if p == "" {
			return result, notRunError{fmt.Errorf("zklock: guard: %w %q: is empty", ErrPath, p)}
		}
		err = c.Mutex(p, opts...).Do(ctx, func(ctx context.Context) error {
			var fnErr error
			result, fnErr = fn(ctx, arg)
			return fnErr
		})
		return result, err
	}
}
