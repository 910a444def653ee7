package otelzklock_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/otelzklock"
	"github.com/zklock/locker/zktest"
)

// A program with OpenTelemetry set up globally needs no options:
// zklock.WithHooks(otelzklock.Hooks()).
func ExampleHooks() {
	// A real program has exporters for OTLP or Prometheus here.
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	tracers := trace.NewTracerProvider(trace.WithSyncer(spans))
	meters := metric.NewMeterProvider(metric.WithReader(reader))

	srv, err := zktest.Start() // stands for "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()
	c, err := zklock.Dial(ctx, srv.Addr(), zklock.WithHooks(otelzklock.Hooks(
		otelzklock.WithTracerProvider(tracers), otelzklock.WithMeterProvider(meters))))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	err = c.Mutex("/locks/rebuild-index").Do(ctx, func(context.Context) error { return nil })
	if err != nil {
		log.Fatal(err)
	}

	for _, span := range spans.GetSpans() {
		fmt.Println("span:", span.Name)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		log.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
			fmt.Println("metric:", m.Name, m.Unit, h.DataPoints[0].Count)
		}
	}
	// Output:
	// span: lock mutex
	// span: hold mutex
	// metric: zklock.lock.wait.duration s 1
	// metric: zklock.lock.hold.duration s 1
}
