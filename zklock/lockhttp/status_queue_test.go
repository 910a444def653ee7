package lockhttp_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// queueAt puts n contenders with data into the queue of dir, which others made.
func queueAt(t testing.TB, srv *zktest.Server, c *zklock.Client, dir string, n int, data []byte) {
	t.Helper()
	locktest.Unlock(t, locktest.Lock(t, c.Mutex(dir)))
	for i := range n {
		require.NoError(t, srv.Create(fmt.Sprintf("%s/x-lock-%010d", dir, i), data))
	}
}

func TestStatusShowsALongQueueByPages(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		queueAt(t, srv, c, "/locks/a", 450, []byte("somebody"))
		h := lockhttp.StatusHandler(c)
		before := srv.Requests()[fault.OpGetData]
		_, s := seeJSON(t, h, "/?path=/locks/a&from=200")
		require.Equal(t, 200, srv.Requests()[fault.OpGetData]-before,
			"data of those that are shown")
		require.Equal(t, 1, s.Queue.Holding)
		require.Equal(t, 449, s.Queue.Waiting)
		require.Len(t, s.Queue.Line, 200)
		require.Equal(t, 201, s.Queue.Line[0].Position)
		for _, k := range []struct {
			from int
			has  []string
			not  []string
		}{
			{0, []string{"450 in line", "here 1 to 200", "from=200\">later"}, []string{"earlier"}},
			{200, []string{"here 201 to 400", "from=0\">earlier", "from=400\">later"}, nil},
			{400, []string{"here 401 to 450", "from=200\">earlier"}, []string{"later"}},
			{9000, []string{"450 in line", "none so far back", "from=250\">earlier"},
				[]string{"later"}},
		} {
			_, body := see(t, h, fmt.Sprint("/?path=/locks/a&from=", k.from))
			for _, has := range k.has {
				require.Contains(t, body, has)
			}
			for _, not := range k.not {
				require.NotContains(t, body, ">"+not+"<")
			}
		}
		for _, bad := range []string{"x", "-1", "1e3"} {
			answer, _ := see(t, h, "/?path=/locks/a&from="+bad)
			require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		}
	})
}

// Scenario 50: the page reads and holds a bounded amount of what others have put there.
func TestStatusOfContendersWithMuchDataIsBounded(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		queueAt(t, srv, c, "/locks/big", 300, make([]byte, 1_000_000))
		queueAt(t, srv, c, "/locks/middle", 300, make([]byte, 200_000))
		h := lockhttp.StatusHandler(c)
		before := srv.Requests()[fault.OpGetData]
		_, body := see(t, h, "/?path=/locks/big&format=json")
		require.Less(t, len(body), 100<<10)
		require.Contains(t, body, `"size": 1000000`)
		require.Zero(t, srv.Requests()[fault.OpGetData]-before)
		_, body = see(t, h, "/?path=/locks/big")
		require.Contains(t, body, "1000000 bytes")
		_, body = see(t, h, "/?path=/locks/middle&format=json")
		require.Less(t, len(body), 24<<20)
		require.Less(t, srv.Requests()[fault.OpGetData]-before, 100)
	})
}

// However many look, at most four queues are read at a time.
func TestStatusReadsAFewQueuesAtATime(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		locktest.Lock(t, c.Mutex("/locks/a"))
		h := lockhttp.StatusHandler(c)
		held := srv.Inject(fault.DelayReply(time.Second).Op(fault.OpMulti))
		before := srv.Requests()[fault.OpMulti]
		codes := make(chan int, 6)
		for range cap(codes) {
			go func() {
				answer, _ := see(t, h, "/?path=/locks/a&format=json")
				codes <- answer.StatusCode
			}()
		}
		synctest.Wait()
		require.Empty(t, codes)
		require.Equal(t, 4, srv.Requests()[fault.OpMulti]-before)
		held.Remove()
		for range cap(codes) {
			require.Equal(t, http.StatusOK, <-codes)
		}
	})
}
