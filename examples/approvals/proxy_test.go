package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// behind starts a proxy before the given addresses.
func behind(t *testing.T, addrs ...string) *proxy {
	t.Helper()
	var f fleet
	for _, a := range addrs {
		f = append(f, &member{addr: a})
	}
	p, err := startProxy(f)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.close()) })
	return p
}

// answers starts a server that is healthy and otherwise runs do.
func answers(t *testing.T, do http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/", do)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// unused returns an address at which nothing listens.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func post(t *testing.T, url, id string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	require.NoError(t, err)
	if id != "" {
		req.Header.Set(idHeader, id)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp, strings.TrimSpace(string(body))
}

// calm posts until an instance answers. On a busy machine none may: the proxy leaves out an instance that takes a
// second for its health check.
func calm(t *testing.T, url, id string) (status int, body string) {
	t.Helper()
	ensemble.Until(t, time.Minute, "an answer", func() error {
		resp, text := post(t, url, id)
		status, body = resp.StatusCode, text
		if status == http.StatusServiceUnavailable && text == "no instance answers" {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	return status, body
}

func TestTheProxyTakesTurnsAndLeavesOutDeadInstances(t *testing.T) {
	var one, two atomic.Int32
	p := behind(t, unused(t), answers(t, func(http.ResponseWriter, *http.Request) { one.Add(1) }),
		answers(t, func(http.ResponseWriter, *http.Request) { two.Add(1) }))
	ensemble.Until(t, time.Minute, "both to have had ten requests", func() error {
		status, body := calm(t, p.url()+"/approvals/k", "x")
		if status != http.StatusOK {
			require.Contains(t, body, "outcome unknown: context canceled") // it was left out just then
		}
		if one.Load() < 10 || two.Load() < 10 {
			return fmt.Errorf("%d and %d", one.Load(), two.Load())
		}
		return nil
	})
}

func TestTheProxyReportsThatNoInstanceAnswers(t *testing.T) {
	resp, body := post(t, behind(t, unused(t)).url()+"/approvals/k", "x")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	assert.Equal(t, "no instance answers", body)
}

// A request that an instance may have got is not sent to another one.
func TestTheProxySendsNoRequestTwice(t *testing.T) {
	var asked atomic.Int32
	dies := func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler) // the connection breaks without an answer
	}
	p := behind(t, answers(t, dies), answers(t, dies))
	status, body := calm(t, p.url()+"/approvals/k", "")
	assert.Equal(t, http.StatusBadGateway, status)
	assert.Contains(t, body, "outcome unknown")
	assert.LessOrEqual(t, asked.Load(), int32(1))
}

// A frozen instance accepts connections and answers nothing: requests that wait for it are cancelled.
func TestTheProxyGivesUpOnAnInstanceThatStopsAnswering(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	p := behind(t, l.Addr().String())
	ensemble.Until(t, time.Minute, "the proxy to leave it out", func() error {
		resp, _ := post(t, p.url()+"/approvals/k", "x")
		if resp.StatusCode != http.StatusServiceUnavailable {
			require.Equal(t, http.StatusBadGateway, resp.StatusCode)
			return fmt.Errorf("it answers %s", resp.Status)
		}
		return nil
	})
}

// One instance, with requests by hand.
func TestTheServicesStatusCodesSayWhatHappened(t *testing.T) {
	srv := zktest.Run(t)
	c, err := zklock.Dial(t.Context(), srv.Addr())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	st, err := openStore(filepath.Join(t.TempDir(), "approvals.db"), "test")
	require.NoError(t, err)
	defer func() { require.NoError(t, st.close()) }()
	require.NoError(t, st.create(t.Context()))
	var stale []staleWrite
	s := &service{name: "one", store: st, gate: newGate(), stale: func(w staleWrite) { stale = append(stale, w) }}
	web := httptest.NewServer(s.handler(c, "/locks"))
	defer web.Close()

	// On a busy machine even a free lock may be acquired too late.
	ask := func(key, id string) (status int, body string) {
		t.Helper()
		ensemble.Until(t, time.Minute, "the lock", func() error {
			resp, text := post(t, web.URL+"/approvals/"+key+"?approver=ann", id)
			status, body = resp.StatusCode, text
			if status == http.StatusConflict {
				return fmt.Errorf("%s", text)
			}
			return nil
		})
		return status, body
	}
	status, body := ask("k", "a")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, `{"N":1,"Already":false}`, body)
	_, body = ask("k", "a")
	assert.Equal(t, `{"N":1,"Already":true}`, body, "the same update, asked for again")
	_, body = ask(strings.Repeat("%2F", 20), "b")
	assert.Equal(t, `{"N":1,"Already":false}`, body, "any key will do")

	status, body = ask("k", "")
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Equal(t, "Idempotency-Key: is missing", body)
	status, _ = ask(strings.Repeat("k", maxKey+1), "c")
	assert.Equal(t, http.StatusBadRequest, status)

	hold, err := c.Mutex(lockPath("/locks", "k")).Lock(t.Context())
	require.NoError(t, err)
	resp, _ := post(t, web.URL+"/approvals/k", "d")
	assert.Equal(t, http.StatusConflict, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.NoError(t, hold.Unlock(t.Context()))

	// A holder with a token higher than any of this ensemble so far.
	claims(t, st, update{ID: "x", Key: "k", Token: 1 << 40}, 1, false)
	status, body = ask("k", "e")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "nothing was written")
	require.Len(t, stale, 1)
	assert.Equal(t, "k", stale[0].Key)
}
