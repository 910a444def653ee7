package lockhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

// scrape returns what the handler shows.
func scrape(t testing.TB, h http.Handler) string {
	t.Helper()
	answer := ask(h, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", answer.Header.Get("Content-Type"))
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}

// live has every metric with every label come up once, and all be over, and returns the handler.
func live(t *testing.T, srv *zktest.Server) http.Handler {
	metrics, hooks := lockhttp.MetricsHandler()
	c, other := locktest.Dial(t, srv, zklock.WithHooks(hooks)), locktest.Dial(t, srv)
	synctest.Wait() // the hook for a session's state may come after Dial's return
	require.Contains(t, scrape(t, metrics), "\nzklock_session_count 1\n")

	h := locktest.Lock(t, c.Mutex("/locks/a"))
	time.Sleep(2 * time.Second)
	require.Contains(t, scrape(t, metrics), `zklock_lock_hold_count{zklock_lock_kind="mutex"} 1`)
	require.Contains(t, scrape(t, metrics),
		`zklock_lock_hold_oldest_seconds{zklock_lock_kind="mutex"} 2`)
	_, _, err := c.Mutex("/locks/a").TryLock(locktest.Soon(t))
	require.ErrorIs(t, err, zklock.ErrBusy)
	waited := make(chan error, 1)
	ctx, cancel := context.WithCancel(locktest.Soon(t))
	go func() {
		_, _, err := c.Mutex("/locks/a").Lock(ctx)
		waited <- err
	}()
	synctest.Wait()
	require.Contains(t, scrape(t, metrics), `zklock_lock_wait_count{zklock_lock_kind="mutex"} 1`)
	time.Sleep(3 * time.Second)
	require.Contains(t, scrape(t, metrics),
		`zklock_lock_wait_oldest_seconds{zklock_lock_kind="mutex"} 3`)
	require.Contains(t, scrape(t, metrics),
		`zklock_lock_hold_oldest_seconds{zklock_lock_kind="mutex"} 5`)
	cancel()
	require.ErrorIs(t, <-waited, context.Canceled)
	locktest.Unlock(t, h)

	rw := c.RWMutex("/locks/rw")
	for _, lock := range []locktest.Acquire{rw.Lock, rw.RLock} {
		locktest.Unlock(t, locktest.Take(t, lock))
	}

	_, leadership, err := c.Election("/locks/leader").Campaign(locktest.Soon(t), nil)
	require.NoError(t, err)
	require.NoError(t, leadership.Unlock())

	// A reentrant call is a wait, and no hold of its own.
	m := c.Mutex("/locks/again", zklock.WithReentrancy())
	_, outer, err := m.Lock(locktest.Soon(t))
	require.NoError(t, err)
	_, inner, err := m.Lock(outer.Context())
	require.NoError(t, err)
	require.Contains(t, scrape(t, metrics), `zklock_lock_hold_count{zklock_lock_kind="mutex"} 1`)
	// This series is there as well.
	require.Contains(t, scrape(t, metrics),
		`zklock_session_changes_total{zklock_session_state="disconnected"} 0`)
	locktest.Unlock(t, inner)
	locktest.Unlock(t, outer)

	locktest.Lock(t, c.Mutex("/locks/b")) // is lost with the session, and a waiter queues again
	webUnlockLater := locktest.Lock(t, other.Mutex("/locks/c"))
	again := make(chan error, 1)
	go func() {
		_, h, err := c.Mutex("/locks/c").Lock(locktest.Soon(t))
		if err == nil {
			err = h.Unlock()
		}
		again <- err
	}()
	synctest.Wait()
	require.NoError(t, srv.Expire(srv.Sessions()[0].ID))
	time.Sleep(time.Minute / 2)
	locktest.Unlock(t, webUnlockLater)
	require.NoError(t, <-again)
	_, _, err = c.Semaphore("/locks/sem", 2).Acquire(locktest.Soon(t), 1)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	return metrics
}

// Scenario 96.
func TestOneHandlerShowsTheHoldsAndWaitsOfAllClients(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		metrics, hooks := lockhttp.MetricsHandler()
		dial := func() *zklock.Client { return locktest.Dial(t, srv, zklock.WithHooks(hooks)) }
		shows := func(metric, value string) {
			t.Helper()
			want := "\n" + metric + `{zklock_lock_kind="mutex"} ` + value + "\n"
			require.Contains(t, scrape(t, metrics), want)
		}
		first, second := dial(), dial()
		locktest.Lock(t, second.Mutex("/held"))
		time.Sleep(time.Second)
		locktest.Lock(t, first.Mutex("/other"))
		wait := locktest.LockAside(t, second.Mutex("/other"))
		time.Sleep(time.Second)
		shows("zklock_lock_hold_count", "2")
		shows("zklock_lock_hold_oldest_seconds", "2")
		shows("zklock_lock_wait_oldest_seconds", "1")

		require.NoError(t, first.Close())
		wait.Result(t)
		shows("zklock_lock_hold_oldest_seconds", "2") // the other Client's hold goes on

		require.NoError(t, second.Close())
		shows("zklock_lock_hold_count", "0")
		locktest.Lock(t, dial().Mutex("/held"))
		time.Sleep(time.Second)
		shows("zklock_lock_hold_oldest_seconds", "1") // of the Client in the others' place
	})
}

func TestMetricsTellWhatHappensToLocks(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		text := scrape(t, live(t, srv))
		const (
			wait    = "zklock_lock_wait_duration_seconds"
			hold    = "zklock_lock_hold_duration_seconds"
			changes = "zklock_session_changes_total"
			ofMutex = `zklock_lock_kind="mutex"`
			done    = `zklock_lock_end="released",` + ofMutex
			closed  = `error_type="closed",zklock_lock_end="closed",zklock_lock_kind="semaphore"`
		)
		for _, want := range []string{
			`zklock_lock_wait_count{zklock_lock_kind="mutex"} 0`,
			`zklock_lock_wait_oldest_seconds{zklock_lock_kind="mutex"} 0`,
			`zklock_lock_hold_oldest_seconds{zklock_lock_kind="mutex"} 0`,
			`zklock_lock_hold_count{zklock_lock_kind="mutex"} 0`,
			`zklock_lock_hold_count{zklock_lock_kind="read"} 0`,
			`zklock_lock_hold_count{zklock_lock_kind="semaphore"} 0`,
			wait + `_count{` + ofMutex + `} 5`,
			wait + `_count{error_type="busy",` + ofMutex + `} 1`,
			wait + `_count{error_type="canceled",` + ofMutex + `} 1`,
			hold + `_bucket{` + done + `,le="1"} 2`,
			hold + `_bucket{` + done + `,le="5"} 3`,
			hold + `_bucket{` + done + `,le="+Inf"} 3`,
			hold + `_sum{` + done + `} 5`,
			hold + `_count{` + closed + `} 1`,
			`zklock_lock_losses_total{error_type="session_expired",zklock_lock_kind="mutex"} 1`,
			// Without this series, the first loss would not be an increase.
			`zklock_lock_losses_total{error_type="node_deleted",zklock_lock_kind="mutex"} 0`,
			changes + `{zklock_session_state="connected"} 2`,
			changes + `{error_type="session_expired",zklock_session_state="over"} 1`,
			`zklock_session_count 0`,
			"# TYPE zklock_lock_wait_duration_seconds histogram",
			"# TYPE zklock_lock_losses_total counter",
			"# TYPE zklock_session_count gauge",
		} {
			require.True(t, strings.Contains(text, want+"\n"), want)
		}
		require.Regexp(t, `(?m)^zklock_lock_retries_total`+
			`{error_type="(session_expired|node_deleted)",zklock_lock_kind="mutex"} 1$`, text)
		require.NotContains(t, text, "/locks", "no path")
	})
}

var (
	sample  = regexp.MustCompile(`^[a-z_]+(\{([a-z_]+="[^"\\]*",?)+\})? [0-9.e+-]+$`)
	comment = regexp.MustCompile(`^# (HELP [a-z_]+ .+\.|TYPE [a-z_]+ (gauge|counter|histogram))$`)
)

func TestMetricsAreInTheTextFormat(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		metrics := live(t, srv)
		seen := map[string]bool{}
		for line := range strings.Lines(scrape(t, metrics)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "#") {
				require.Regexp(t, comment, line)
				continue
			}
			require.Regexp(t, sample, line)
			series, _, _ := strings.Cut(line, " ")
			require.False(t, seen[series], "twice: %s", series)
			seen[series] = true
		}
		require.Equal(t, http.StatusMethodNotAllowed,
			ask(metrics, httptest.NewRequest(http.MethodPost, "/metrics", nil)).StatusCode)
	})
}

var (
	metricName = regexp.MustCompile(`\bzklock_(lock|session)_[a-z_]+`)
	labelName  = regexp.MustCompile(`\b(zklock_lock_kind|zklock_lock_end|` +
		`zklock_session_state|error_type|le)\b`)
	labelValue = regexp.MustCompile(`([a-z_]+)!?=~?"([a-z_]+)"`)
)

// Every metric and label that the dashboard and the alert rules name is one that the handler shows.
func TestTheDashboardAndTheAlertsNameExistingMetrics(t *testing.T) {
	var board struct {
		Templating struct{ List []struct{ Query string } }
		Panels     []struct {
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	text, err := os.ReadFile("../../docs/monitoring/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &board))
	var queries []string
	for _, v := range board.Templating.List {
		queries = append(queries, v.Query)
	}
	for _, p := range board.Panels {
		require.NotEmpty(t, p.Targets)
		for _, target := range p.Targets {
			queries = append(queries, target.Expr, target.LegendFormat)
		}
	}
	alerts, err := os.ReadFile("../../docs/monitoring/alerts.yaml")
	require.NoError(t, err)
	queries = append(queries, string(alerts))
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		shown := scrape(t, live(t, srv))
		named := 0
		for _, q := range queries {
			for _, name := range metricName.FindAllString(q, -1) {
				if labelName.MatchString(name) {
					require.Contains(t, shown, name+`="`, q)
					continue
				}
				require.Regexp(t, fmt.Sprintf(`(?m)^%s[{ ]`, name), shown, q)
				named++
			}
			for _, m := range labelValue.FindAllStringSubmatch(q, -1) {
				require.Contains(t, shown, fmt.Sprintf("%s=%q", m[1], m[2]), q)
			}
		}
		require.Greater(t, named, 10)
	})
}
