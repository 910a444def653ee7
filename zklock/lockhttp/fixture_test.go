package lockhttp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
)

// wait is longer than a test's request waits.
const wait = time.Hour

// byKey chooses a mutex, by the key in the request's query.
func byKey(c *zklock.Client, opts ...zklock.LockOption) func(*http.Request) (lockhttp.Do, error) {
	return func(r *http.Request) (lockhttp.Do, error) {
		return c.Mutex(zklock.KeyPath("/locks/approve", r.URL.Query().Get("key")), opts...).Do, nil
	}
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
var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusNoContent)
})

// never returns a handler that must not be called.
func never(t *testing.T) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a handler without a lock")
	})
}

// locked returns h under the lock of a request's key. Requests wait for as long as they have to.
func locked(c *zklock.Client, h http.Handler, opts ...zklock.LockOption) http.Handler {
	return lockhttp.Middleware(wait, byKey(c, opts...))(h)
}

// pipes is a listener in memory, for servers in simulated time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, errors.New("refused")
	}
}

// start has a server listen in memory until the test ends, and returns a client of it.
func start(t *testing.T, web *http.Server) *http.Client {
	p := pipes{make(chan net.Conn), make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- web.Serve(p) }()
	client := &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
	t.Cleanup(func() {
		require.NoError(t, web.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return client
}
