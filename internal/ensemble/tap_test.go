package ensemble_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
)

func TestTapCountsRequestsAndNotificationsAndNothingElse(t *testing.T) {
	e := ensemble.Shared(t, 1)
	p := e.Proxies(t)[0]
	tap := p.Tap()
	path := e.Path(t)

	_, err := e.Nodes[0].FourLetter("srvr")
	require.NoError(t, err)
	c := connect(t, p.Addr(), 4*time.Second)
	require.Equal(t, 1, tap.Handshakes())
	require.Zero(t, tap.Count())

	_, err = c.Create(path, nil, 0, openACL)
	require.NoError(t, err)
	_, err = c.Create(path, nil, 0, openACL)
	require.Error(t, err)
	_, _, _, err = c.ExistsW(path)
	require.NoError(t, err)
	_, _, err = c.Children(path)
	require.NoError(t, err)
	require.NoError(t, c.Delete(path, -1))
	require.Equal(t, map[int32]int{ensemble.OpCreate: 2, ensemble.OpExists: 1, ensemble.OpGetChildren2: 1, ensemble.OpDelete: 1}, tap.Requests())
	require.Equal(t, 5, tap.Count())
	require.Equal(t, 3, tap.Count(ensemble.OpCreate, ensemble.OpDelete))
	tap.Await(t, bound, "the notification", func(t *ensemble.Tap) bool { return t.Notifications() == 1 })

	frames := tap.Frames()
	require.Len(t, frames, 11, "five requests, five replies, one notification:\n%s", tap)
	var zxid int64
	for _, f := range frames {
		switch {
		case f.Xid == -1:
			require.Equal(t, ensemble.Replies, f.Dir)
			require.Equal(t, path, f.Path)
		case f.Dir == ensemble.Requests:
			require.Equal(t, path, f.Path)
		case f.Op == ensemble.OpCreate && f.Err == 0:
			zxid = f.Zxid
		case f.Op == ensemble.OpCreate:
			require.EqualValues(t, -110, f.Err, "node exists")
			require.Greater(t, f.Zxid, zxid)
		}
	}
	require.Equal(t, "#1 request create "+path+" xid=1", frames[0].String())
	require.NotZero(t, zxid)

	tap.Await(t, bound, "a ping", func(t *ensemble.Tap) bool { return t.Pings() > 0 })
	require.Equal(t, 5, tap.Count(), "a ping is not a request")
	tap.Reset()
	require.Empty(t, tap.Requests())
	require.Empty(t, tap.Frames())
	require.Zero(t, tap.Notifications())

	require.Zero(t, tap.Handshakes())
	p.Cut()
	tap.Await(t, bound, "the session to be resumed", func(t *ensemble.Tap) bool { return t.Handshakes() > 0 })
}

func TestTapCountsRequestsThatPassAndNotThoseHeldBack(t *testing.T) {
	e := ensemble.Shared(t, 1)
	p := e.Proxies(t)[0]
	path := e.Path(t)
	c := connect(t, p.Addr(), 10*time.Second)
	p.HoldRequests()
	p.Tap().Reset()
	created := make(chan error, 1)
	go func() { // ends with the answer, which is awaited below
		_, err := c.Create(path, nil, 0, openACL)
		created <- err
	}()
	select {
	case err := <-created:
		t.Fatalf("created although the request was held: %v", err)
	case <-time.After(moment):
	}
	require.Zero(t, p.Tap().Count())
	p.Thaw()
	require.NoError(t, <-created)
	require.Equal(t, map[int32]int{ensemble.OpCreate: 1}, p.Tap().Requests())
}

func TestTapIgnoresBytesThatAreNotZooKeepersProtocol(t *testing.T) {
	e := ensemble.Shared(t, 1)
	p := e.Proxies(t)[0]
	c := dial(t, p.Addr())
	say(t, c, "ruok")
	hear(t, c, "imok")
	require.Zero(t, p.Tap().Handshakes())
	require.Zero(t, p.Tap().Count())
}
