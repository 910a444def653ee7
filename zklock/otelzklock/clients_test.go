package otelzklock_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/otelzklock"
	"github.com/zklock/locker/zktest"
)

// oldest is what one of the gauges says of mutexes.
func oldest(seconds float64) []point {
	return []point{{"zklock.lock.kind=mutex", 0, seconds}}
}

// Scenario 96.
func TestTheOldestHoldAndWaitAreThoseOfAllClients(t *testing.T) {
	locktest.BubbleAlone(t, func(t *testing.T, srv *zktest.Server) {
		r := newRecord()
		dial := func() *zklock.Client {
			return locktest.Dial(t, srv, zklock.WithHooks(r.hooks()))
		}
		first, second := dial(), dial()
		locktest.Lock(t, second.Mutex("/held"))
		time.Sleep(time.Second)
		short := locktest.Lock(t, first.Mutex("/other"))
		wait := locktest.LockAside(t, second.Mutex("/other"))
		time.Sleep(time.Second)
		require.Equal(t, oldest(2), r.metric(t, "zklock.lock.hold.oldest"))
		require.Equal(t, oldest(1), r.metric(t, "zklock.lock.wait.oldest"))

		require.NoError(t, short.Unlock())
		require.NoError(t, wait.Result(t).Unlock())
		require.NoError(t, first.Close())
		require.Equal(t, oldest(2), r.metric(t, "zklock.lock.hold.oldest"),
			"the other Client's hold goes on")

		require.NoError(t, second.Close())
		require.Empty(t, r.metric(t, "zklock.lock.hold.oldest"))
		third := dial()
		locktest.Lock(t, third.Mutex("/held"))
		time.Sleep(time.Second)
		require.Equal(t, oldest(1), r.metric(t, "zklock.lock.hold.oldest"),
			"of the Client in the place of those that were closed")
	})
}

func TestTwoHooksOfOneClientEachHaveTheirSeries(t *testing.T) {
	locktest.BubbleAlone(t, func(t *testing.T, srv *zktest.Server) {
		r := newRecord()
		more := otelzklock.WithMetricAttributes(func(zklock.LockInfo) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String("class", "any")}
		})
		c := locktest.Dial(t, srv, zklock.WithHooks(r.hooks()), zklock.WithHooks(r.hooks(more)))
		locktest.Lock(t, c.Mutex("/l"))
		time.Sleep(time.Second)
		require.Len(t, r.metric(t, "zklock.lock.hold.oldest"), 2)
	})
}

// A provider that wraps another one, as some do to add attributes, may make a meter for each call.
func TestAMeterHasOneCallbackHoweverManyClientsThereWere(t *testing.T) {
	locktest.BubbleAlone(t, func(t *testing.T, srv *zktest.Server) {
		r := newRecord()
		p := &countingProvider{MeterProvider: r.meter}
		for range 20 {
			hooks := otelzklock.Hooks(otelzklock.WithMeterProvider(p))
			c := locktest.Dial(t, srv, zklock.WithHooks(hooks))
			locktest.Lock(t, c.Mutex("/l"))
			require.NoError(t, c.Close())
		}
		require.EqualValues(t, 2, p.callbacks.Load(), "one for each gauge")
		require.Zero(t, otelzklock.CallsOf(p), "that wait or hold")
	})
}

func TestAProviderThatIsNoLongerUsedIsNotKept(t *testing.T) {
	discarded := func() weak.Pointer[countingProvider] {
		p := &countingProvider{MeterProvider: newRecord().meter}
		otelzklock.Hooks(otelzklock.WithMeterProvider(p))
		return weak.Make(p)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return discarded.Value() == nil
	}, 10*time.Second, time.Millisecond)
}

// Some hooks are made before the program has set its provider, some after it.
func TestHooksFromBeforeTheProviderWasSetReportWithLaterOnes(t *testing.T) {
	locktest.BubbleAlone(t, func(t *testing.T, srv *zktest.Server) {
		early := locktest.Dial(t, srv, zklock.WithHooks(otelzklock.Hooks()))
		r := setGlobally()
		late := locktest.Dial(t, srv, zklock.WithHooks(otelzklock.Hooks()))
		locktest.Lock(t, late.Mutex("/l"))
		time.Sleep(time.Second)
		locktest.Lock(t, early.Mutex("/m"))
		time.Sleep(time.Second)
		require.Equal(t, oldest(2), r.metric(t, "zklock.lock.hold.oldest"))
	})
}

// setGlobally makes a record the global one, at its first call: hooks that were made before report
// to the first provider that a process sets.
var setGlobally = sync.OnceValue(func() *record {
	r := newRecord()
	otel.SetMeterProvider(r.meter)
	return r
})

// countingProvider counts the callbacks of the meters that it makes, a new one for each call.
type countingProvider struct {
	metric.MeterProvider
	callbacks atomic.Int64
}

func (p *countingProvider) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return &countingMeter{p.MeterProvider.Meter(name, opts...), p}
}

type countingMeter struct {
	metric.Meter
	provider *countingProvider
}

func (m *countingMeter) Float64ObservableGauge(
	name string, opts ...metric.Float64ObservableGaugeOption,
) (metric.Float64ObservableGauge, error) {
	callbacks := metric.NewFloat64ObservableGaugeConfig(opts...).Callbacks()
	m.provider.callbacks.Add(int64(len(callbacks)))
	return m.Meter.Float64ObservableGauge(name, opts...)
}

func (m *countingMeter) RegisterCallback(
	fn metric.Callback, instruments ...metric.Observable,
) (metric.Registration, error) {
	m.provider.callbacks.Add(1)
	return m.Meter.RegisterCallback(fn, instruments...)
}
