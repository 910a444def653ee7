package otelzklock

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// present is which calls wait or hold now, and since when: the calls of all hooks that record with
// one meter. A meter has one present, since it takes one value only for each of its gauges and each
// set of attributes.
type present struct {
	provider metric.MeterProvider
	meter    metric.Meter

	mu    sync.Mutex // guards calls; held for a map entry, or to look at all
	calls map[numbered]since
}

// numbered is a call as some hooks record it: two of them may record the same Client.
type numbered struct {
	hooks  *recorder
	number uint64 // LockInfo.Call
}

type since struct {
	attrs attribute.Set
	begin time.Time
	holds bool
}

// presents are those that there are. A present is kept by the hooks that use it and by its meter,
// which has its callback. So it goes with them, and the list keeps no provider alive.
var presents struct {
	mu   sync.Mutex // guards list; held while a meter is asked for instruments
	list []weak.Pointer[present]
}

// presentOf returns the present of the provider's meter. It makes one, with its callback, if the
// meter has none.
func presentOf(provider metric.MeterProvider, meter metric.Meter) *present {
	presents.mu.Lock()
	defer presents.mu.Unlock()
	presents.list = slices.DeleteFunc(presents.list, func(p weak.Pointer[present]) bool {
		return p.Value() == nil
	})
	for _, weakly := range presents.list {
		if p := weakly.Value(); p != nil && p.isOf(provider, meter) {
			return p
		}
	}
	p := &present{provider: provider, meter: meter, calls: map[numbered]since{}}
	p.report()
	presents.list = append(presents.list, weak.Make(p))
	return p
}

// isOf reports whether the present belongs to the provider's meter. Two providers may lead to one
// meter: OpenTelemetry's global one, for example, and the one that otel.SetMeterProvider was given.
// Then both return the same instrument.
func (p *present) isOf(provider metric.MeterProvider, meter metric.Meter) bool {
	if same(p.provider, provider) {
		return true
	}
	ours, err := waitOldest.of(p.meter)
	if err != nil {
		return false
	}
	theirs, err := waitOldest.of(meter)
	return err == nil && same(ours, theirs)
}

// same reports whether a and b are one value, also of types for which == panics: then they are not.
func same(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// gauge describes one of the gauges that are asked for their value when metrics are collected.
type gauge struct{ name, text string }

var (
	waitOldest = gauge{"zklock.lock.wait.oldest",
		"How long the call has waited that has waited longest."}
	holdOldest = gauge{"zklock.lock.hold.oldest",
		"How long the lock has been held that has been held longest."}
)

// of returns the meter's instrument, which is the same for each call.
func (g gauge) of(m metric.Meter) (metric.Float64ObservableGauge, error) {
	return m.Float64ObservableGauge(g.name, metric.WithUnit("s"), metric.WithDescription(g.text))
}

// report has the meter ask for the oldest wait and the oldest hold whenever metrics are collected.
func (p *present) report() {
	for _, g := range []struct {
		gauge
		holds bool
	}{{waitOldest, false}, {holdOldest, true}} {
		instrument, err := g.of(p.meter)
		if err != nil {
			otel.Handle(err)
			continue
		}
		observe := func(_ context.Context, o metric.Observer) error {
			for attrs, age := range p.oldest(g.holds) {
				o.ObserveFloat64(instrument, age.Seconds(), metric.WithAttributeSet(attrs))
			}
			return nil
		}
		if _, err := p.meter.RegisterCallback(observe, instrument); err != nil {
			otel.Handle(err)
		}
	}
}

// begin notes that a call waits, or holds, from now on.
func (p *present) begin(call numbered, attrs attribute.Set, holds bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[call] = since{attrs, time.Now(), holds}
}

func (p *present) end(call numbered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, call)
}

// oldest returns for each set of attributes how long the first of those has waited, or held, that
// still do.
func (p *present) oldest(holds bool) map[attribute.Set]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[attribute.Set]time.Duration{}
	for _, s := range p.calls {
		if s.holds == holds {
			all[s.attrs] = max(all[s.attrs], time.Since(s.begin))
		}
	}
	return all
}
