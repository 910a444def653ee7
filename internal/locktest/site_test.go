package locktest_test

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/internal/locktest"
)

func TestMain(m *testing.M) { os.Exit(ensemble.Run(m)) }

func TestWatchesAreCountedWhenAServerAnswersLate(t *testing.T) {
	s := locktest.OwnSite(t, 1)
	n := s.Ensemble().Nodes[0]
	for _, count := range []func(){
		func() { require.Zero(t, s.Watches(t)) },
		func() { locktest.AwaitWatches(t, s, 0) },
	} {
		require.NoError(t, n.Pause())
		var late sync.WaitGroup
		late.Go(func() {
			for range 2 { // so that a count that has begun by now has had no answer once
				_, err := n.WatchCount()
				assert.Error(t, err)
			}
			assert.NoError(t, n.Resume())
		})
		count()
		late.Wait()
	}
}
