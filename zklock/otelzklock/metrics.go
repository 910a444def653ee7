package otelzklock

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// bounds are the histograms' buckets, in seconds: a free lock takes a millisecond, a job under a
// lock may take an hour.
var bounds = []float64{
	.001, .0025, .005, .01, .025, .05, .1, .25, .5,
	1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
}

// metrics are the instruments.
type metrics struct {
	waited, held     metric.Float64Histogram
	waits, holds     metric.Int64UpDownCounter
	losses, retries  metric.Int64Counter
	changes          metric.Int64Counter
	connectedSession metric.Int64UpDownCounter
}

// newMetrics makes the instruments, except for the gauges, which a present has.
func newMetrics(m metric.Meter) metrics {
	seconds := func(name, text string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name,
			metric.WithUnit("s"),
			metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(bounds...))
		return usable(h, err, metric.Float64Histogram(noop.Float64Histogram{}))
	}
	level := func(name, unit, text string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		return usable(c, err, metric.Int64UpDownCounter(noop.Int64UpDownCounter{}))
	}
	count := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		return usable(c, err, metric.Int64Counter(noop.Int64Counter{}))
	}
	return metrics{
		waited: seconds("zklock.lock.wait.duration",
			"Time from asking for a lock to having it, or giving up."),
		held: seconds("zklock.lock.hold.duration",
			"Time from having a lock to its release or loss."),
		waits: level("zklock.lock.wait.count", "{call}",
			"Calls that wait for a lock now."),
		holds: level("zklock.lock.hold.count", "{hold}",
			"Locks that are held now."),
		losses: count("zklock.lock.losses", "{loss}",
			"Holds that ended without having been released."),
		retries: count("zklock.lock.retries", "{retry}",
			"Steps towards a lock that failed and were made again."),
		changes: count("zklock.session.changes", "{change}",
			"Changes of the ZooKeeper session's state."),
		connectedSession: level("zklock.session.count", "{session}",
			"ZooKeeper sessions that are connected now."),
	}
}

// usable returns the instrument or, if the provider has refused it with err, nothing, which records
// nothing. The error goes to OpenTelemetry's error handler, which is the program's.
func usable[T any](instrument T, err error, nothing T) T {
	if err != nil {
		otel.Handle(err)
		return nothing
	}
	return instrument
}
