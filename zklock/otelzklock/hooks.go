package otelzklock

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/internal/errtype"
)

// Hooks returns hooks that record what they are told. They may serve several Clients, or each
// Client may have hooks of its own: with one meter provider, the metrics are those of all of them.
// They may stand beside other hooks. Instruments that the provider refuses are reported to
// OpenTelemetry's error handler, and left out.
func Hooks(opts ...Option) zklock.Hooks {
	c := newConfig(opts)
	meter := c.meters.Meter(ScopeName)
	r := &recorder{
		config:    c,
		tracer:    c.tracers.Tracer(ScopeName),
		metrics:   newMetrics(meter),
		present:   presentOf(c.meters, meter),
		calls:     map[uint64]*call{},
		connected: map[int64]bool{},
		counted:   map[attribute.Distinct]bool{},
	}
	// A process that never connects has these series, too.
	ctx := context.Background()
	disconnected := stateKey.String(session.Disconnected.String())
	r.metrics.connectedSession.Add(ctx, 0)
	r.metrics.changes.Add(ctx, 0, metric.WithAttributes(disconnected))
	return zklock.Hooks{
		Session:  r.session,
		Asked:    r.asked,
		Queued:   r.queued,
		Acquired: r.acquired,
		Failed:   r.failed,
		Released: r.released,
		Lost:     r.lost,
		Retried:  r.retried,
	}
}

// recorder is what the hooks share.
type recorder struct {
	config
	tracer  trace.Tracer
	metrics metrics
	present *present // of the meter; other hooks may share it

	mu        sync.Mutex       // guards what follows
	calls     map[uint64]*call // that wait or hold, by LockInfo.Call
	connected map[int64]bool   // session ids

	counted map[attribute.Distinct]bool // the attributes whose losses have a counter
}

// call is a call that waits or holds.
type call struct {
	ctx   context.Context      // of the caller, with the lock's span: for exemplars
	attrs []attribute.KeyValue // of its metrics, without the kind

	mu   sync.Mutex // guards what follows
	span trace.Span // "lock", then "hold", or one that records nothing if holds have no spans
	kind string
	over bool
}

// all returns the attributes of the call's metrics, with the kind, and more.
func (k *call) all(more ...attribute.KeyValue) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(k.attrs)+1+len(more))
	all = append(all, k.attrs...)
	all = append(all, kindKey.String(k.kind))
	return append(all, more...)
}

// with returns the call's attributes, and more, for a measurement.
func (k *call) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(k.all(more...)...)
}

// set returns the call's attributes as a set.
func (k *call) set() attribute.Set { return attribute.NewSet(k.all()...) }

// during records by fn an event of a call that goes on. It does nothing if the call is over, or if
// these hooks were not told of its Asked. The events of a call are recorded one at a time.
func (r *recorder) during(number uint64, fn func(k *call)) {
	r.mu.Lock()
	k := r.calls[number]
	r.mu.Unlock()
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		fn(k)
	}
}

// finally is during for the last event of a call.
func (r *recorder) finally(number uint64, fn func(k *call)) {
	r.mu.Lock()
	k := r.calls[number]
	delete(r.calls, number)
	r.mu.Unlock()
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.over = true
		fn(k)
		r.present.end(numbered{r, number})
	}
}

func (r *recorder) asked(i zklock.LockInfo) {
	k := &call{kind: string(i.Kind), attrs: r.attributes(i)}
	k.ctx, k.span = r.tracer.Start(i.Context, "lock "+k.kind,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(lockAttributes(i)...))
	set := k.set()
	r.mu.Lock()
	r.calls[i.Call] = k
	counted := r.counted[set.Equivalent()]
	r.counted[set.Equivalent()] = true
	r.mu.Unlock()
	if !counted {
		for _, why := range errtype.Losses {
			r.metrics.losses.Add(k.ctx, 0, k.with(errorTypeKey.String(why)))
		}
	}
	r.present.begin(numbered{r, i.Call}, set, false)
	r.metrics.waits.Add(k.ctx, 1, k.with())
}

func (r *recorder) queued(i zklock.LockInfo) {
	r.during(i.Call, func(k *call) {
		attrs := []attribute.KeyValue{
			aheadKey.Int(i.Ahead),
			holderNodeKey.String(i.HolderNode),
		}
		if i.HolderOwner != "" {
			attrs = append(attrs, holderOwnerKey.String(i.HolderOwner))
		}
		k.span.AddEvent("queued", trace.WithAttributes(attrs...))
	})
}

func (r *recorder) retried(i zklock.LockInfo) {
	r.during(i.Call, func(k *call) {
		kind := errorTypeKey.String(errtype.Of(i.Err))
		message := messageKey.String(i.Err.Error())
		k.span.AddEvent("retried", trace.WithAttributes(kind, message))
		r.metrics.retries.Add(k.ctx, 1, k.with(kind))
	})
}

func (r *recorder) acquired(i zklock.LockInfo) {
	if i.Joined != 0 {
		r.finally(i.Call, func(k *call) { r.joined(k, i) })
		return
	}
	r.during(i.Call, func(k *call) {
		r.endWait(k, i)
		k.span.End()
		r.metrics.holds.Add(k.ctx, 1, k.with())
		r.present.begin(numbered{r, i.Call}, k.set(), true)
		k.span = noop.Span{}
		if r.holds {
			attrs := append(lockAttributes(i), holdAttributes(i)...)
			_, k.span = r.tracer.Start(i.Context, "hold "+k.kind,
				trace.WithSpanKind(trace.SpanKindInternal),
				trace.WithAttributes(attrs...))
		}
	})
}

// joined records that a call has joined the hold of another call, and is over by that.
func (r *recorder) joined(k *call, i zklock.LockInfo) {
	r.endWait(k, i)
	k.span.SetAttributes(joinedKey.Int64(int64(i.Joined)))
	k.span.End()
}

// endWait records that a call's wait has ended with a hold.
func (r *recorder) endWait(k *call, i zklock.LockInfo) {
	r.metrics.waits.Add(k.ctx, -1, k.with())
	r.metrics.waited.Record(k.ctx, i.Waited.Seconds(), k.with())
	k.span.SetAttributes(holdAttributes(i)...)
}

func (r *recorder) failed(i zklock.LockInfo) {
	r.finally(i.Call, func(k *call) {
		why := errtype.Of(i.Err)
		kind := errorTypeKey.String(why)
		r.metrics.waits.Add(k.ctx, -1, k.with())
		r.metrics.waited.Record(k.ctx, i.Waited.Seconds(), k.with(kind))
		k.span.SetAttributes(kind)
		if !i.Try || why != errtype.Busy { // a try's "busy" is an answer, and no failure
			k.span.SetStatus(codes.Error, i.Err.Error())
		}
		k.span.End()
	})
}

func (r *recorder) released(i zklock.LockInfo) {
	r.finally(i.Call, func(k *call) {
		end := endKey.String("released")
		r.metrics.holds.Add(k.ctx, -1, k.with())
		r.metrics.held.Record(k.ctx, i.Held.Seconds(), k.with(end))
		if i.Err != nil { // it is released, and its znode may still be there
			message := messageKey.String(i.Err.Error())
			k.span.AddEvent("release pending", trace.WithAttributes(message))
		}
		k.span.SetAttributes(end)
		k.span.End()
	})
}

func (r *recorder) lost(i zklock.LockInfo) {
	r.finally(i.Call, func(k *call) {
		why := errtype.Of(i.Err)
		kind, end := errorTypeKey.String(why), endKey.String("lost")
		if why == errtype.Closed { // by the program itself
			end = endKey.String("closed")
		} else {
			r.metrics.losses.Add(k.ctx, 1, k.with(kind))
			k.span.SetStatus(codes.Error, i.Err.Error())
		}
		r.metrics.holds.Add(k.ctx, -1, k.with())
		r.metrics.held.Record(k.ctx, i.Held.Seconds(), k.with(end, kind))
		k.span.SetAttributes(end, kind)
		k.span.End()
	})
}

func (r *recorder) session(i session.Change) {
	ctx := context.Background()
	attrs := []attribute.KeyValue{stateKey.String(i.State.String())}
	if i.State == session.Over {
		attrs = append(attrs, errorTypeKey.String(errtype.Of(i.Err)))
	}
	r.metrics.changes.Add(ctx, 1, metric.WithAttributes(attrs...))
	r.mu.Lock()
	was := r.connected[i.ID]
	is := i.State == session.Connected
	if is {
		r.connected[i.ID] = true
	} else {
		delete(r.connected, i.ID)
	}
	r.mu.Unlock()
	switch {
	case is && !was:
		r.metrics.connectedSession.Add(ctx, 1)
	case was && !is:
		r.metrics.connectedSession.Add(ctx, -1)
	}
}
