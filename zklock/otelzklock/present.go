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

// present has the calls that wait or hold now, and since when: those of all hooks that record with
// one meter. A meter has one present, since it takes only one value for each of its gauges and each
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

// since is a call's wait or hold.
type since struct {
	attrs attribute.Set
	begin time.Time
	holds bool
}

// presents has every present. A present is kept alive by the hooks that use it and by its meter,
// which has its callback. The list's pointers are weak, so that it keeps no provider alive.
var presents struct {
	mu   sync.Mutex // guards list; held while a meter is asked for its instruments
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

// same reports whether a and b are one value. It returns false for values for which == panics.
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

// report registers the callbacks by which the meter asks for the oldest wait and the oldest hold
// whenever metrics are collected.
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

// begin records that a call waits, or holds, from now on.
func (p *present) begin(call numbered, attrs attribute.Set, holds bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[call] = since{attrs, time.Now(), holds}
}

// end records that a call neither waits nor holds any more.
func (p *present) end(call numbered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, call)
}

// oldest returns, for each set of attributes, how long the longest hold has lasted that still
// lasts. If holds is false, it returns the same of the waits.
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
