package otelzklock

import "go.opentelemetry.io/otel/metric"

// CallsOf returns how many calls wait or hold now that are recorded with the provider's meter.
func CallsOf(provider metric.MeterProvider) int {
	p := presentOf(provider, provider.Meter(ScopeName))
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}
