package otelzklock

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zklock/locker/zklock"
)

// ScopeName is the instrumentation scope of the metrics and spans.
const ScopeName = "github.com/zklock/locker/zklock/otelzklock"

// Option configures Hooks.
type Option struct{ set func(*config) }

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	attributes func(zklock.LockInfo) []attribute.KeyValue
	holds      bool // have spans
}

func newConfig(opts []Option) config {
	c := config{holds: true, attributes: func(zklock.LockInfo) []attribute.KeyValue { return nil }}
	for _, o := range opts {
		if o.set != nil {
			o.set(&c)
		}
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	return c
}

// WithTracerProvider makes p record the spans. The default, also for nil, is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return Option{func(c *config) { c.tracers = p }}
}

// WithMeterProvider makes p record the metrics. The default, also for nil, is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return Option{func(c *config) { c.meters = p }}
}

// WithMetricAttributes adds the attributes that fn returns to the metrics of a lock. Usually that
// is a class of paths. fn is called once for each call that asks for a lock.
//
// Every different value is its own time series, kept for as long as the process lives. So a path
// that is made from a key does not belong here. The default is none.
func WithMetricAttributes(fn func(zklock.LockInfo) []attribute.KeyValue) Option {
	return Option{func(c *config) {
		if fn != nil {
			c.attributes = fn
		}
	}}
}

// WithoutHoldSpans leaves out the spans "hold <kind>". It is for locks that are held for days, such
// as a leader's, whose spans end when nobody looks at the trace any more. A loss is then recorded
// in no span, but in the metrics.
func WithoutHoldSpans() Option {
	return Option{func(c *config) { c.holds = false }}
}
