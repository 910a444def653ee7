package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

// Curator creates a lock's directory as a container, which the ensemble removes some time after its
// last contender has gone. The next contender creates it again. Only a Kazoo lock object that has
// been used before does not: it fails, and a new one does not.
func TestADirectoryThatCuratorMadeMayBeDeletedBetweenTwoHolds(t *testing.T) {
	needClients(t)
	e := ensemble.Shared(t, 1, ensemble.WithContainerCheck(200*time.Millisecond))
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			path := e.Path(t)
			w := newWitness(t, e, path)
			maker := launch(t, curator, e, calm).open(t, "maker", path)
			p := launch(t, kind, e, calm)
			c := p.open(t, "1", path)
			must(t, maker.acquire("lock"))
			line := c.start("lock")
			w.awaitLine(t, 2)
			must(t, maker.release("lock"))
			line.held(t)
			must(t, c.release("lock"))

			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			ensemble.Until(t, bound, "the directory to go", func() error {
				s, err := w.client.Session(ctx)
				if err != nil {
					return err
				}
				if _, err = s.Exists(ctx, path); errors.Is(err, zk.ErrNoNode) {
					return nil
				}
				return errors.Join(errors.New("it is there"), err)
			})

			err := c.acquire("lock")
			if kind == kazoo {
				require.ErrorContains(t, err, "NoNodeError")
				c = p.open(t, "2", path)
				err = c.acquire("lock")
			}
			must(t, err)
			require.Equal(t, c.session, w.awaitLine(t, 1)[0].Session)
			must(t, c.release("lock"))
		})
	}
}
