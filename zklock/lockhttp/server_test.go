package lockhttp_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

// handlers has handlers under lock: one that answers and counts, one whose answer comes in parts, one that aborts, and one that
// takes the connection over.
func handlers(t *testing.T, lock func(http.Handler) http.Handler, served *atomic.Int32) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/short", lock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, err := io.WriteString(w, "done")
		if err != nil {
			t.Error(err)
		}
	})))
	mux.Handle("/stream", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 2 {
			if _, err := io.WriteString(w, "line\n"); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
			if r.URL.Query().Has("leave") {
				<-r.Context().Done() // the client goes away
			}
		}
	})))
	mux.Handle("/abort", lock(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })))
	mux.Handle("/hijack", lock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 299 Hijacked\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})))
	return mux
}

// What a real server and a real client see.
func TestBehindARealServer(t *testing.T) {
	zoo := zktest.Run(t)
	c := locktest.Dial(t, zoo)
	var served atomic.Int32
	srv := httptest.NewServer(handlers(t, lockhttp.Middleware(locktest.Bound, byKey(c)), &served))
	t.Cleanup(srv.Close)
	get := func(path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(locktest.Soon(t), http.MethodGet, srv.URL+path, nil)
		require.NoError(t, err)
		return srv.Client().Do(req)
	}

	for range 20 {
		answer, err := get("/short?key=a")
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, "done", string(body))
		require.Empty(t, zoo.Children("/locks/approve/a"), "who has read the answer finds the lock free")
	}
	require.EqualValues(t, 20, served.Load())

	answer, err := get("/stream?key=b")
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, "line\nline\n", string(body))

	// A client that leaves in the middle of an answer ends the handler, and so frees the lock.
	answer, err = get("/stream?key=b&leave")
	require.NoError(t, err)
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "line\n", line)
	require.NoError(t, answer.Body.Close())
	locktest.Unlock(t, locktest.Lock(t, c.Mutex("/locks/approve/b")))

	_, err = get("/abort?key=c")
	require.Error(t, err, "no answer")
	answer, err = get("/hijack?key=c")
	require.NoError(t, err)
	require.Equal(t, 299, answer.StatusCode)
	locktest.Unlock(t, locktest.Lock(t, c.Mutex("/locks/approve/c")))
}
