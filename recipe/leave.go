package recipe

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Leave gives up the place: it deletes the znode, by its full name, and nothing else. Nil: it is deleted. ErrGone:
// somebody had deleted it before. Any other error: ctx or the session ended first; then the deletion goes on in the
// background, until it has succeeded or the session is over and the server deletes the znode.
//
// It blocks for one round trip, or until ctx ends. A ctx that has ended already does not keep the znode from being
// deleted.
func (t *Ticket) Leave(ctx context.Context) error {
	if t.twin != nil {
		if err := t.twin.Leave(ctx); err != nil && !errors.Is(err, ErrGone) {
			t.discard()
			return err
		}
	}
	err := t.delete(ctx)
	for first := true; ; first = false {
		switch {
		case err == nil:
			t.unwatch()
			return nil
		case errors.Is(err, zk.ErrNoNode):
			t.unwatch()
			if first {
				return ErrGone
			}
			return nil // the deletion whose reply was lost was ours
		case t.s.Err() != nil:
			return err
		case ctx.Err() == nil && transient(err):
			err = t.delete(ctx)
			continue
		}
		t.discard()
		return ended(ctx, err)
	}
}

// ended makes sure that the error of a call whose ctx has ended says so, whatever else went wrong.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return session.Waited(ctx, err)
}

// persist calls fn until it succeeds, there is nothing to do, or we are not allowed to: then the session's end has to
// do. ctx is the session's.
func persist(ctx context.Context, fn func() error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := fn()
		if err == nil || final(err) {
			return
		}
		if transient(err) {
			continue // the next attempt waits for a connection by itself
		}
		timer := time.NewTimer(pause) // a server in trouble must not be hammered
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Pauses between attempts that a server answered with an error that may pass.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// delete deletes the znode once. A watch on it needs no taking away: the deletion makes it fire. With a lock delay,
// the directory's note of us goes with it.
func (t *Ticket) delete(ctx context.Context) (err error) {
	if t.delayed {
		err = t.unclaim(ctx)
	} else {
		err = t.s.Delete(ctx, t.node, -1)
	}
	if err == nil {
		t.renewed()
	}
	return err
}
