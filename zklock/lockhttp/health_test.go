package lockhttp_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

// probe asks a health handler.
func probe(t *testing.T, h http.Handler, path string) (status int, answer map[string]any) {
	t.Helper()
	r := ask(h, httptest.NewRequest(http.MethodGet, path, nil))
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.NoError(t, json.NewDecoder(r.Body).Decode(&answer))
	return r.StatusCode, answer
}

func TestHealthIsReadyWhileAServerIsConnectedAndLiveUntilTheClientIsClosed(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		locktest.Lock(t, c.Mutex("/locks/a")) // so that the lease is confirmed
		h := lockhttp.HealthHandler(c)
		status, answer := probe(t, h, "/health/ready")
		require.Equal(t, 200, status)
		require.Equal(t, "ready", answer["status"])
		require.Equal(t, "connected", answer["state"])
		require.EqualValues(t, 10, answer["timeout_seconds"])
		require.Regexp(t, "^0x[0-9a-f]+$", answer["session"])
		require.NotEmpty(t, answer["server"])
		require.Greater(t, answer["lease_seconds"], 0.0)
		require.LessOrEqual(t, answer["lease_seconds"], 10.0)

		srv.Leader().Down()
		synctest.Wait()
		status, answer = probe(t, h, "/health/")
		require.Equal(t, 503, status)
		require.Equal(t, "not ready", answer["status"])
		require.NotContains(t, answer, "server")
		status, answer = probe(t, h, "/health/live")
		require.Equal(t, 200, status)
		require.Equal(t, "live", answer["status"])
		time.Sleep(time.Minute)
		status, answer = probe(t, h, "/health/ready")
		require.Equal(t, 503, status)
		require.EqualValues(t, 0, answer["lease_seconds"])
		srv.Leader().Up()
		time.Sleep(time.Minute)
		status, _ = probe(t, h, "/health/ready")
		require.Equal(t, 200, status, "it finds its way back")

		require.NoError(t, c.Close())
		for _, path := range []string{"/ready", "/live"} {
			status, answer = probe(t, h, path)
			require.Equal(t, 503, status)
			require.Equal(t, "closed", answer["status"])
			require.NotEmpty(t, answer["why"])
		}
		require.Equal(t, http.StatusMethodNotAllowed,
			ask(h, httptest.NewRequest(http.MethodDelete, "/live", nil)).StatusCode)
		require.Panics(t, func() { lockhttp.HealthHandler(nil) })
	})
}
