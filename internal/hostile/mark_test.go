package hostile_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const markSuffix = "-released"

// threeInLine has a client behind two others, the second of which gives up or is released; liar stands between the third
// and its server from then on. holds: the third holds when the second is gone.
func threeInLine(t *testing.T, version zktest.Version, release bool, liar func(second string) liar) (holds bool, lists int) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener(), zktest.WithVersion(version))
		dial := func(p *peer) *zklock.Mutex {
			opts := []zklock.Option{zklock.WithDialer(srv.Dial)}
			if p != nil {
				opts = []zklock.Option{zklock.WithDialer(p.dial)}
			}
			c, err := zklock.Dial(t.Context(), srv.Addr(), opts...)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			return c.Mutex(dir)
		}
		var mu sync.Mutex
		lie := honest
		p := &peer{srv: srv, lie: func(f said) ([]byte, bool, bool) {
			mu.Lock()
			defer mu.Unlock()
			return lie(f)
		}}
		first, err := dial(nil).Lock(t.Context())
		require.NoError(t, err)
		second, third := make(chan *zklock.Hold, 1), make(chan *zklock.Hold, 1)
		giveUp, cancel := context.WithCancel(t.Context())
		queue := func(ctx context.Context, m *zklock.Mutex, got chan *zklock.Hold) {
			go func() {
				h, err := m.Lock(ctx)
				if err == nil {
					got <- h
				}
			}()
			synctest.Wait()
		}
		queue(giveUp, dial(nil), second)
		node := ""
		for _, name := range srv.Children(dir) {
			if dir+"/"+name != first.Node() {
				node = dir + "/" + name
			}
		}
		queue(t.Context(), dial(p), third)
		mu.Lock()
		lie = liar(node)
		mu.Unlock()
		if release {
			require.NoError(t, first.Unlock(t.Context()))
			first = <-second
		}
		synctest.Wait()
		lists = srv.Requests()[zktest.OpGetChildren2]
		if release {
			require.NoError(t, first.Unlock(t.Context()))
		}
		cancel()
		synctest.Wait()
		holds = len(third) > 0
		lists = srv.Requests()[zktest.OpGetChildren2] - lists
		if !release {
			require.NoError(t, first.Unlock(t.Context()))
		}
		ctx, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		select {
		case h := <-third:
			require.NoError(t, h.Unlock(ctx))
		case <-ctx.Done():
			t.Fatal("it never holds")
		}
		cancel()
	})
	return holds, lists
}

func TestAMarkThatNobodyMadeLetsNobodyIn(t *testing.T) {
	for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
		holds, _ := threeInLine(t, version, false, func(second string) liar {
			return func(f said) ([]byte, bool, bool) {
				if f.op == zktest.OpNotify && f.path == second {
					return append(note(1, 3, second+markSuffix), framed(f.body)...), false, false
				}
				return honest(f)
			}
		})
		// Before 3.9 a notification does not tell its transaction: what such a server says is believed.
		require.Equal(t, version == zktest.Version38, holds, "%v", version)
	}
}

func TestAMarkWithoutADeletionLetsNobodyIn(t *testing.T) {
	for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
		holds, lists := threeInLine(t, version, false, func(second string) liar {
			return func(f said) ([]byte, bool, bool) {
				if f.op == zktest.OpNotify && f.path == second { // there was one; it is told of the mark in its place
					return note(1, 3, second+markSuffix), false, false
				}
				return honest(f)
			}
		})
		require.False(t, holds, "%v", version)
		require.Zero(t, lists)
	}
}

func TestAMarkThatIsToldBehindTheDeletionLetsTheNextOneIn(t *testing.T) {
	var mark []byte
	holds, lists := threeInLine(t, zktest.Version39, true, func(second string) liar {
		return func(f said) ([]byte, bool, bool) {
			switch {
			case f.op == zktest.OpNotify && strings.HasSuffix(f.path, markSuffix):
				mark = framed(f.body)
				return []byte{}, false, false
			case f.op == zktest.OpNotify && f.path == second && mark != nil:
				return append(framed(f.body), mark...), false, false
			}
			return honest(f)
		}
	})
	require.NotNil(t, mark)
	require.True(t, holds)
	require.LessOrEqual(t, lists, 1)
}
