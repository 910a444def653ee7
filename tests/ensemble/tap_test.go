package ensemble_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

func TestTapLogsRequestsRepliesAndNotificationsAndNothingElse(t *testing.T) {
	e := ensemble.Shared(t, 1)
	p := e.Proxies(t)[0]
	tap := p.Tap()
	path := e.Path(t)

	_, err := e.Nodes[0].FourLetter("srvr")
	require.NoError(t, err)
	c := connect(t, p.Addr(), 4*time.Second)
	require.Empty(t, tap.Frames(), "a handshake is no request")

	_, err = c.Create(path, nil, 0, openACL)
	require.NoError(t, err)
	_, err = c.Create(path, nil, 0, openACL)
	require.Error(t, err)
	_, _, _, err = c.ExistsW(path)
	require.NoError(t, err)
	_, _, err = c.Children(path)
	require.NoError(t, err)
	require.NoError(t, c.Delete(path, -1))
	ensemble.Until(t, bound, "the notification", func() error {
		if !slices.ContainsFunc(tap.Frames(), func(f ensemble.Frame) bool { return f.Xid == -1 }) {
			return fmt.Errorf("so far passed:\n%s", tap)
		}
		return nil
	})

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

	tap.Reset()
	require.Empty(t, tap.Frames())
}

func TestTapLogsRequestsThatPassAndNotThoseHeldBack(t *testing.T) {
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
	require.Empty(t, p.Tap().Frames())
	p.Thaw()
	require.NoError(t, <-created)
	require.Equal(t, ensemble.OpCreate, p.Tap().Frames()[0].Op)
}

func TestTapIgnoresBytesThatAreNotZooKeepersProtocol(t *testing.T) {
	e := ensemble.Shared(t, 1)
	p := e.Proxies(t)[0]
	c := dial(t, p.Addr())
	say(t, c, "ruok")
	hear(t, c, "imok")
	require.Empty(t, p.Tap().Frames())
}
