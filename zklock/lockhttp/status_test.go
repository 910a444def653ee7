package lockhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// see asks the handler for a page and returns its body.
func see(t testing.TB, h http.Handler, target string, accept ...string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for _, a := range accept {
		r.Header.Add("Accept", a)
	}
	answer := ask(h, r)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer, string(body)
}

// seen is what the tests read of the JSON.
type seen struct {
	Session struct {
		ID, State, Server, Error string
		Timeout                  float64   `json:"timeout_seconds"`
		SafeUntil                time.Time `json:"safe_until"`
	}
	Holding, Waiting int
	Holds            []struct {
		Kind, Path, Owner, Node string
		Token                   int64
		Count                   int
		Since                   time.Time
	}
	Waits []struct {
		Path, Holder, Who string
		Ahead             int
	}
	Queue *struct {
		Path, Error      string
		Holding, Waiting int
		Line             []struct {
			Position, PID     int
			Holds             bool
			Owner, Host, Node string
			Session           string
			Token             int64
			Data              []byte
		}
	}
}

func seeJSON(t testing.TB, h http.Handler, target string) (*http.Response, seen) {
	t.Helper()
	answer, body := see(t, h, target, "application/json")
	require.Equal(t, "application/json", answer.Header.Get("Content-Type"))
	var s seen
	require.NoError(t, json.Unmarshal([]byte(body), &s), body)
	return answer, s
}

// waitAside has c wait for a lock until the test ends.
func waitAside(t *testing.T, c *zklock.Client, path string, opts ...zklock.LockOption) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, _, err := c.Mutex(path, opts...).Lock(ctx); err == nil {
			t.Error("got a lock that is held")
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func TestStatusAsJSON(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c, other := locktest.Dial(t, srv), locktest.Dial(t, srv)
		hold := locktest.Lock(t, c.Mutex("/locks/a", zklock.WithOwner("me")))
		theirs := locktest.Lock(t, other.Mutex("/locks/b", zklock.WithOwner("they")))
		waitAside(t, c, "/locks/b")
		time.Sleep(time.Second)
		h := lockhttp.StatusHandler(c)

		answer, s := seeJSON(t, h, "/debug/locks")
		require.Equal(t, http.StatusOK, answer.StatusCode)
		st := c.Status()
		require.Equal(t, fmt.Sprintf("%#x", st.Session.ID), s.Session.ID)
		require.Equal(t, "connected", s.Session.State)
		require.Equal(t, srv.Addr(), s.Session.Server)
		require.Equal(t, 10.0, s.Session.Timeout)
		require.True(t, st.Session.SafeUntil.Equal(s.Session.SafeUntil))
		require.Equal(t, 1, s.Holding)
		require.Equal(t, "/locks/a", s.Holds[0].Path)
		require.Equal(t, "mutex", s.Holds[0].Kind)
		require.Equal(t, "me", s.Holds[0].Owner)
		require.Equal(t, hold.Node(), s.Holds[0].Node)
		require.Equal(t, int64(hold.Token()), s.Holds[0].Token)
		require.Equal(t, 1, s.Holds[0].Count)
		require.Equal(t, 1, s.Waiting)
		require.Equal(t, "/locks/b", s.Waits[0].Path)
		require.Equal(t, 1, s.Waits[0].Ahead)
		require.Equal(t, theirs.Node(), s.Waits[0].Holder)
		require.True(t, strings.HasPrefix(s.Waits[0].Who, "they ("))
		require.Nil(t, s.Queue)

		_, s = seeJSON(t, h, "/debug/locks?path=/locks/b")
		require.Equal(t, "/locks/b", s.Queue.Path)
		require.Equal(t, 1, s.Queue.Holding)
		require.Equal(t, 1, s.Queue.Waiting)
		require.Equal(t, theirs.Node(), s.Queue.Line[0].Node)
		require.True(t, s.Queue.Line[0].Holds)
		require.Equal(t, "they", s.Queue.Line[0].Owner)
		require.Equal(t, int64(theirs.Token()), s.Queue.Line[0].Token)
		require.Equal(t, 2, s.Queue.Line[1].Position)
		require.False(t, s.Queue.Line[1].Holds)
		_, _, err := other.Election("/leader").Campaign(locktest.Soon(t), []byte("10.0.0.7:80"))
		require.NoError(t, err)
		_, s = seeJSON(t, h, "/debug/locks?path=/leader")
		require.Equal(t, []byte("10.0.0.7:80"), s.Queue.Line[0].Data)
		answer, s = seeJSON(t, h, "/debug/locks?path=/locks/nobody")
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Empty(t, s.Queue.Line)
		answer, s = seeJSON(t, h, "/debug/locks?path=locks")
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		require.Contains(t, s.Queue.Error, "locks")
		require.Equal(t, 1, s.Holding, "the rest all the same")
	})
}

func TestStatusChoosesTheFormat(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		h := lockhttp.StatusHandler(locktest.Dial(t, srv))
		for _, k := range []struct {
			target, accept, want string
		}{
			{"/", "", "text/html; charset=utf-8"},
			{"/", "*/*", "text/html; charset=utf-8"},
			{"/", "text/html,application/xhtml+xml,application/json;q=0.9",
				"text/html; charset=utf-8"},
			{"/", "application/json", "application/json"},
			{"/", "text/plain, application/json;q=0.5", "application/json"},
			{"/?format=json", "text/html", "application/json"},
			{"/?format=html", "application/json", "text/html; charset=utf-8"},
		} {
			answer, body := see(t, h, k.target, k.accept)
			require.Equal(t, k.want, answer.Header.Get("Content-Type"), "%v", k)
			require.Equal(t, http.StatusOK, answer.StatusCode)
			require.Equal(t, strings.HasPrefix(k.want, "text/html"),
				strings.HasPrefix(body, "<!DOCTYPE html>"))
		}
		for _, bad := range []string{
			"/?format=xml", "/?refresh=x", "/?refresh=0", "/?refresh=-1", "/?refresh=3601",
		} {
			answer, _ := see(t, h, bad)
			require.Equal(t, http.StatusBadRequest, answer.StatusCode, bad)
		}
		_, body := see(t, h, "/?refresh=5")
		require.Contains(t, body, `<meta http-equiv="refresh" content="5">`)
		_, body = see(t, h, "/")
		require.NotContains(t, body, `http-equiv="refresh"`)
	})
}

func TestStatusIsReadOnlyAndKeepsTheBrowserIn(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		h := lockhttp.StatusHandler(locktest.Dial(t, srv))
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"} {
			answer := ask(h, httptest.NewRequest(method, "/?path=/l", nil))
			require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode, method)
			require.Equal(t, "GET, HEAD", answer.Header.Get("Allow"), method)
		}
		changes := func() (n int) {
			requests := srv.Requests()
			return requests[fault.OpCreate] + requests[fault.OpDelete] + requests[fault.OpSetData]
		}
		before := changes()
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			answer := ask(h, httptest.NewRequest(method, "/?path=/l", nil))
			require.Equal(t, http.StatusOK, answer.StatusCode, method)
			policy := answer.Header.Get("Content-Security-Policy")
			require.True(t, strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-"),
				policy)
			require.NotContains(t, policy, "unsafe")
			require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
			require.Equal(t, "no-store", answer.Header.Get("Cache-Control"))
		}
		require.Equal(t, before, changes(), "nothing is changed")
	})
}

func TestStatusWithoutTheEnsemble(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		locktest.Lock(t, c.Mutex("/locks/a"))
		h := lockhttp.StatusHandler(c)
		srv.Leader().Down()
		synctest.Wait()
		began := time.Now()
		answer, s := seeJSON(t, h, "/?path=/locks/a")
		require.Equal(t, 3*time.Second, time.Since(began), "bounded")
		require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
		require.Equal(t, "disconnected", s.Session.State)
		require.Empty(t, s.Session.Server)
		require.Contains(t, s.Queue.Error, "no server reachable")
		require.Len(t, s.Holds, 1)
		_, body := see(t, h, "/?path=/locks/a")
		require.Contains(t, body, "disconnected")
		require.Contains(t, body, "no server reachable")
		time.Sleep(20 * time.Second)
		_, body = see(t, h, "/")
		require.Contains(t, body, "Held here: 0")
		srv.Leader().Up()
		_, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		require.NoError(t, c.Close())
		answer, s = seeJSON(t, h, "/?path=/locks/a")
		require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
		require.Equal(t, "over", s.Session.State)
		require.Contains(t, s.Session.Error, "closed")
	})
}

func TestStatusShowsTheFirstThousand(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		paths := make([]string, 1001)
		for i := range paths {
			paths[i] = fmt.Sprint("/locks/", i)
			locktest.Lock(t, c.Mutex(paths[i]))
		}
		h := lockhttp.StatusHandler(c)
		_, s := seeJSON(t, h, "/")
		require.Equal(t, 1001, s.Holding)
		require.Len(t, s.Holds, 1000)
		_, body := see(t, h, "/")
		require.Contains(t, body, "Held here: 1001")
		require.Contains(t, body, "The first 1000 are shown.")
	})
}

// hostile is what others may put into their znodes.
var hostile = map[string]string{ // to how it is shown
	`<script>document.title="owned"</script>`:  `<script>document.title="owned"</script>`,
	`"><img src=x onerror="document.title=1">`: `"><img src=x onerror="document.title=1">`,
	"</style></td></table><h1>Locks</h1>":      "</style></td></table><h1>Locks</h1>",
	"\u202egnp.exe":                            `\u202egnp.exe`,
	"bell\a\x1b[31m\r\n":                       `bell\a\x1b[31m\r\n`,
	"bad \xff utf-8":                           `bad \xff utf-8`,
	"العربية":                                  "العربية",
	strings.Repeat("W", 5000):                  strings.Repeat("W", 299) + "…",
	"{{.CSS}}${x}`javascript:alert(1)":         "{{.CSS}}${x}`javascript:alert(1)",
}

// plant puts every hostile text into a queue, as another client's data.
func plant(t testing.TB, srv *zktest.Server, c *zklock.Client, dir string) {
	t.Helper()
	locktest.Unlock(t, locktest.Lock(t, c.Mutex(dir)))
	n := 100
	for text := range hostile {
		n++
		node := fmt.Sprintf("%s/_c_eafce068-f6d8-4b65-bc2c-0674f78ec2d7-lock-%010d", dir, n)
		require.NoError(t, srv.Create(node, []byte(text)))
	}
}

// The parameter comes from a link that somebody else may have made.
func TestStatusEscapesItsOwnParameterAsItDoesTheNamesOfZnodes(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		h := lockhttp.StatusHandler(locktest.Dial(t, srv))
		long := "/" + strings.Repeat("W", 1000)
		for path, shown := range map[string]string{
			"/locks/\u202egnp.exe": `/locks/\u202egnp.exe`,
			"/bell\a\x1b[31m\r\n":  `/bell\a\x1b[31m\r\n`,
			"/a\u009bb\u2028":      `/a\u009bb\u2028`,
			"/bad \xff utf-8":      `/bad \xff utf-8`,
			"/العربية":             "/العربية",
			long:                   long,
		} {
			_, body := see(t, h, "/?path="+url.QueryEscape(path))
			require.Contains(t, body, `name="path" value="`+shown+`"`)
			require.Contains(t, body, `href="?path=`) // of the same lock
			require.Equal(t, -1, strings.IndexFunc(body, func(r rune) bool {
				return r != '\n' && !strconv.IsPrint(r) || r == utf8.RuneError
			}), "%q", body)
		}
	})
}

func TestStatusEscapesWhatOthersWrote(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		plant(t, srv, c, "/locks/a")
		for text := range hostile {
			if !strings.Contains(text, "\xff") { // JSON can't carry it as an owner
				locktest.Lock(t,
					c.Mutex(zklock.KeyPath("/locks/mine", text), zklock.WithOwner(text)))
			}
		}
		h := lockhttp.StatusHandler(c)
		_, body := see(t, h, "/?path=/locks/a")
		for _, bad := range []string{
			"<script", "<img", "</style></td>", "\u202e", "\a", "\x1b", "\xff",
			"WWWWW" + strings.Repeat("W", 300),
		} {
			require.NotContains(t, body, bad)
		}
		require.Equal(t, 1, strings.Count(body, "<h1>"))
		require.Contains(t, body, "&lt;script&gt;")
		answer, body := see(t, h, `/?path=`+`%3Cscript%3Ealert(1)%3C/script%3E`)
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		require.NotContains(t, body, "<script")
		_, body = see(t, h, "/?format=json&path=/locks/a")
		require.NotContains(t, body, "<script")
	})
}
