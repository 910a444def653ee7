package otelzklock_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

var metricName = regexp.MustCompile(`\bzklock_(lock|session)_[a-z_]+`)

// Every metric that the dashboard and the alert rules in docs/monitoring name is one of these,
// under the name that OpenTelemetry's exporter for Prometheus gives it: underscores, the unit
// behind the name, _total behind a counter's.
func TestTheDashboardAndTheAlertsNameExistingMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, r *record, c *zklock.Client) {
		h := locktest.Lock(t, c.Mutex("/l"))
		require.NoError(t, srv.Delete(h.Node()))
		<-h.Context().Done()
		locktest.Lock(t, c.Mutex("/held"))
		go c.Mutex("/held").Lock(t.Context()) // for the metrics of what there is now
		synctest.Wait()
		var all metricdata.ResourceMetrics
		require.NoError(t, r.reader.Collect(locktest.Soon(t), &all))
		there := map[string]bool{"zklock_lock_retries_total": true} // of which there was none
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				name := strings.ReplaceAll(m.Name, ".", "_")
				switch data := m.Data.(type) {
				case metricdata.Histogram[float64]:
					require.Equal(t, "s", m.Unit)
					for _, part := range []string{"bucket", "sum", "count"} {
						there[name+"_seconds_"+part] = true
					}
				case metricdata.Gauge[float64]:
					require.Equal(t, "s", m.Unit)
					there[name+"_seconds"] = true
				case metricdata.Sum[int64]:
					if data.IsMonotonic {
						name += "_total"
					}
					there[name] = true
				default:
					require.Fail(t, "no such metric", fmt.Sprintf("%s: %T", m.Name, data))
				}
			}
		}
		for _, file := range []string{"dashboard.json", "alerts.yaml"} {
			text, err := os.ReadFile("../../docs/monitoring/" + file)
			require.NoError(t, err)
			named := 0
			for _, name := range metricName.FindAllString(string(text), -1) {
				switch name {
				case "zklock_lock_kind", "zklock_lock_end", "zklock_session_state": // labels
					continue
				}
				require.True(t, there[name], "%s names %s", file, name)
				named++
			}
			require.Greater(t, named, 4, file)
		}
	})
}
