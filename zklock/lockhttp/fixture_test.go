package lockhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// webBound bounds what must not hang: far beyond what it takes.
const webBound = 60 * time.Second

// webBubble runs fn with a server under simulated time; a goroutine that is left behind fails the test.
func webBubble(t *testing.T, fn func(t *testing.T, srv *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, zktest.Run(t, zktest.WithoutListener())) })
}

func webDial(t testing.TB, srv *zktest.Server, opts ...zklock.Option) *zklock.Client {
	t.Helper()
	c, err := zklock.Dial(webContext(t), srv.Addr(), append([]zklock.Option{zklock.WithDialer(srv.Dial)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func webContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), webBound)
	t.Cleanup(cancel)
	return ctx
}

func webLock(t testing.TB, c *zklock.Client, path string, opts ...zklock.LockOption) *zklock.Hold {
	t.Helper()
	h, err := c.Mutex(path, opts...).Lock(webContext(t))
	require.NoError(t, err)
	return h
}

func webUnlock(t testing.TB, h *zklock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(webContext(t)))
}

// byKey makes a lock's path from the request's query.
func byKey(r *http.Request) (string, error) {
	return zklock.KeyPath("/locks/approve", r.URL.Query().Get("key")), nil
}

// ask has a handler serve one request, and returns the answer.
func ask(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func post(ctx context.Context, key string) *http.Request {
	return httptest.NewRequestWithContext(ctx, http.MethodPost, "/approve?key="+key, nil)
}

// ok is a handler that has nothing to do.
var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
