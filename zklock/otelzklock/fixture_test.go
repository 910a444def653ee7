package otelzklock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/otelzklock"
	"github.com/zklock/locker/zktest"
)

// record is what a program's locks leave in OpenTelemetry.
type record struct {
	spans  *tracetest.InMemoryExporter
	tracer *trace.TracerProvider
	meter  *metric.MeterProvider
	reader *metric.ManualReader
}

func newRecord() *record {
	r := &record{spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	r.tracer = trace.NewTracerProvider(trace.WithSyncer(r.spans))
	r.meter = metric.NewMeterProvider(metric.WithReader(r.reader))
	return r
}

func (r *record) hooks(opts ...otelzklock.Option) zklock.Hooks {
	opts = append(opts,
		otelzklock.WithTracerProvider(r.tracer),
		otelzklock.WithMeterProvider(r.meter))
	return otelzklock.Hooks(opts...)
}

type recorded func(t *testing.T, srv *zktest.Server, r *record, c *zklock.Client)

// bubble runs fn under simulated time, with a server and a client that records.
func bubble(t *testing.T, fn recorded, opts ...otelzklock.Option) {
	t.Helper()
	locktest.BubbleAlone(t, func(t *testing.T, srv *zktest.Server) {
		r := newRecord()
		fn(t, srv, r, locktest.Dial(t, srv, zklock.WithHooks(r.hooks(opts...))))
	})
}

// span returns the only span of a name, as attributes and all.
func (r *record) span(t testing.TB, name string) tracetest.SpanStub {
	t.Helper()
	synctest.Wait()
	var found []tracetest.SpanStub
	for _, s := range r.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1, "%q among %v", name, r.names())
	return found[0]
}

func (r *record) names() (names []string) {
	for _, s := range r.spans.GetSpans() {
		names = append(names, s.Name)
	}
	return names
}

// attrs returns attributes as text.
func attrs(kvs []attribute.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range kvs {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

func eventNames(s tracetest.SpanStub) (names []string) {
	for _, e := range s.Events {
		names = append(names, e.Name)
	}
	return names
}

// point is one time series of a metric: its attributes as text, and its sum, or count and sum.
type point struct {
	attrs string
	count uint64
	sum   float64
}

// metric returns the time series of one metric that are not zero, in the order of their attributes.
func (r *record) metric(t testing.TB, name string) (points []point) {
	t.Helper()
	synctest.Wait()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(context.Background(), &all))
	enc := attribute.DefaultEncoder()
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, otelzklock.ScopeName, scope.Scope.Name)
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				require.Equal(t, "s", m.Unit)
				for _, p := range data.DataPoints {
					points = append(points, point{p.Attributes.Encoded(enc), p.Count, p.Sum})
				}
			case metricdata.Gauge[float64]:
				require.Equal(t, "s", m.Unit)
				for _, p := range data.DataPoints {
					points = append(points, point{p.Attributes.Encoded(enc), 0, p.Value})
				}
			case metricdata.Sum[int64]:
				require.NotEmpty(t, m.Unit)
				for _, p := range data.DataPoints {
					if p.Value != 0 {
						points = append(points,
							point{p.Attributes.Encoded(enc), 0, float64(p.Value)})
					}
				}
			default:
				require.Failf(t, "unknown", "%s is a %T", name, data)
			}
		}
	}
	slices.SortFunc(points, func(a, b point) int {
		if a.attrs < b.attrs {
			return -1
		}
		return 1
	})
	return points
}
