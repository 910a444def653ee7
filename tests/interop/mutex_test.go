package interop_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

// Four kinds of clients, two of each, contend for one mutex. There are never two inside, none fails
// on another kind's znode, and none is overtaken: each that enters arrived after all that entered
// before.
func TestFourKindsOfClientsShareOneMutex(t *testing.T) {
	needClients(t)
	const each = 2
	times := 200 / each // acquisitions of each contender
	if long() {
		times *= 8
	}
	e := ensemble.Shared(t, 3)
	path := e.Path(t)
	w := newWitness(t, e, path)
	var all []*contender
	for _, kind := range kinds {
		p := launch(t, kind, e, calm)
		for i := range each {
			all = append(all, p.open(t, fmt.Sprint(i+1), path))
		}
	}

	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 4*bound)
	defer cancel()
	var first sync.Once
	var atFirst string
	var together sync.WaitGroup
	var done atomic.Int32
	for _, c := range all {
		together.Go(func() {
			for i := range times {
				err := c.acquire("lock")
				if err == nil {
					w.enter(c, "lock")
					err = w.check(ctx, c)
					w.leave(c)
				}
				if err == nil {
					err = c.release("lock")
				}
				if err != nil {
					t.Errorf("acquisition %d: %v", i+1, err)
					return
				}
			}
			first.Do(func() { atFirst = w.shares() })
			done.Add(1)
		})
	}
	together.Wait()
	took := time.Since(began)
	require.NoError(t, w.err())
	require.EqualValues(t, len(all), done.Load())
	for _, kind := range kinds {
		require.Equal(t, each*times, w.entries[kind], kind)
	}
	t.Logf("%d acquisitions in %v, %v each; when the first contender was through: %s",
		len(all)*times, took.Round(time.Millisecond),
		(took / time.Duration(len(all)*times)).Round(10*time.Microsecond), atFirst)
	require.Empty(t, w.awaitLine(t, 0))
}

// Each kind sees the others in line, and our Queue shows their owners, as far as their znodes have
// them.
func TestTheQueueShowsContendersOfOtherLibrariesInOrder(t *testing.T) {
	needClients(t)
	e := ensemble.Shared(t, 3)
	path := e.Path(t)
	w := newWitness(t, e, path)
	before := time.Now()
	var line []*pending
	for i, kind := range kinds {
		line = append(line, launch(t, kind, e, calm).open(t, "7", path).start("lock"))
		w.awaitLine(t, i+1) // so that they stand in this order
	}
	shown := w.awaitLine(t, len(kinds))
	var token int64
	for i, k := range shown {
		c := line[i]
		require.Equal(t, i == 0, k.Holds, c.name)
		require.Equal(t, "mutex", string(k.Kind), c.name)
		require.Equal(t, c.session, k.Session, c.name)
		require.Greater(t, int64(k.Token), token, c.name)
		token = int64(k.Token)
		require.WithinRange(t, k.Since, before.Add(-bound), time.Now().Add(bound), c.name)
		switch c.kind {
		case ours:
			require.Equal(t, "zklock-7", k.Owner)
			require.NotEmpty(t, k.Host)
			require.Equal(t, c.cmd.Process.Pid, k.PID)
			require.Empty(t, k.Data)
		case driver:
			require.Equal(t, "zk.Lock-7", k.Owner)
		case kazoo:
			require.Equal(t, "kazoo-7", k.Owner)
		case curator:
			require.NotEmpty(t, k.Owner) // its address
		}
		if c.kind != ours {
			require.Equal(t, k.Owner, string(k.Data), c.name)
			require.Empty(t, k.Host, c.name)
			require.Zero(t, k.PID, c.name)
		}
	}
	for i, c := range line {
		c.held(t)
		if c.kind == curator { // its zxid is its token, as pages say
			must(t, c.want(fmt.Sprint("token ", int64(shown[i].Token)), "token"))
		}
		for _, later := range line[i+1:] {
			later.waits(t)
		}
		ensemble.Until(t, bound, "it to see the others", func() error {
			// its server may be behind by a moment
			return c.want(fmt.Sprint("line ", len(line)-i), "line")
		})
		must(t, c.release("lock"))
	}
	require.Empty(t, w.awaitLine(t, 0))
}
