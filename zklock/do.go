package zklock

import (
	"context"
	"errors"
)

func do(
	ctx context.Context, lock func(context.Context) (context.Context, *Hold, error),
	fn func(context.Context) error,
) error {
	needFunction(fn == nil)
	_, h, err := lock(ctx)
	if err != nil {
		return notRunError{err}
	}
	return h.do(ctx, fn)
}

// tryDo is do with a call that does not wait. ran reports whether fn was called; that the lock is
// busy is no error.
func tryDo(ctx context.Context, try func(context.Context) (context.Context, *Hold, error),
	fn func(context.Context) error) (ran bool, err error) {
	err = do(ctx, try, fn)
	switch {
	case !errors.Is(err, ErrNotRun):
		return true, err
	case errors.Is(err, ErrBusy):
		return false, nil
	}
	return false, err
}

// needFunction panics for a mistake in the program before anything else happens: see the package
// comment.
func needFunction(missing bool) {
	if missing {
		panic("zklock: nil function")
	}
}
