package otelzklock

import (
	"context"
	"slices"
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
// They may stand beside other hooks. Instruments that the provider refuses are told to
// OpenTelemetry's error handler, and left out.
func Hooks(opts ...Option) zklock.Hooks {
	c := newConfig(opts)
	meter := c.meters.Meter(ScopeName)
	r := &recorder{config: c, tracer: c.tracers.Tracer(ScopeName), metrics: newMetrics(meter),
		present: presentOf(c.meters, meter), calls: map[uint64]*call{}, connected: map[int64]bool{}, counted: map[attribute.Distinct]bool{}}
	r.metrics.connectedSession.Add(context.Background(), 0) // a process that never connects has a series, too
	r.metrics.changes.Add(context.Background(), 0, metric.WithAttributes(stateKey.String(session.Disconnected.String())))
	return zklock.Hooks{Session: r.session, Asked: r.asked, Queued: r.queued, Acquired: r.acquired, Failed: r.failed,
		Released: r.released, Lost: r.lost, Retried: r.retried}
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

// call is one that waits or holds.
type call struct {
	ctx   context.Context      // of the caller, with the lock's span: for exemplars
	attrs []attribute.KeyValue // of its metrics, the kind left out

	mu   sync.Mutex // guards what follows
	span trace.Span // lock, then hold; one that records nothing for a hold without
	kind string
	over bool
}

// with returns the call's attributes with more.
func (k *call) with(more ...attribute.KeyValue) metric.MeasurementOption {
	all := append(append(make([]attribute.KeyValue, 0, len(k.attrs)+1+len(more)), k.attrs...), kindKey.String(k.kind))
	return metric.WithAttributes(append(all, more...)...)
}

// set is the call's attributes.
func (k *call) set() attribute.Set {
	return attribute.NewSet(append(slices.Clone(k.attrs), kindKey.String(k.kind))...)
}

// on has fn record an event of a call, one at a time. last: there is none after it. Nothing is
// recorded of a call whose Asked these hooks were not told of, or which is over.
func (r *recorder) on(number uint64, last bool, fn func(k *call)) {
	r.mu.Lock()
	k, ok := r.calls[number]
	if last {
		delete(r.calls, number)
	}
	r.mu.Unlock()
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.over = last
		fn(k)
		if last {
			r.present.end(numbered{r, number})
		}
	}
}

func (r *recorder) asked(i zklock.LockInfo) {
	k := &call{kind: string(i.Kind), attrs: r.attributes(i)}
	k.ctx, k.span = r.tracer.Start(i.Context, "lock "+k.kind, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(lockAttributes(i)...))
	r.mu.Lock()
	r.calls[i.Call] = k
	set := k.set()
	counted := r.counted[set.Equivalent()]
	r.counted[set.Equivalent()] = true
	r.mu.Unlock()
	if !counted {
		for _, why := range errtype.Losses {
			r.metrics.losses.Add(k.ctx, 0, k.with(errorTypeKey.String(why)))
		}
	}
	r.present.begin(numbered{r, i.Call}, k.set(), false)
	r.metrics.waits.Add(k.ctx, 1, k.with())
}

func (r *recorder) queued(i zklock.LockInfo) {
	r.on(i.Call, false, func(k *call) {
		attrs := []attribute.KeyValue{aheadKey.Int(i.Ahead), holderNodeKey.String(i.HolderNode)}
		if i.HolderOwner != "" {
			attrs = append(attrs, holderOwnerKey.String(i.HolderOwner))
		}
		k.span.AddEvent("queued", trace.WithAttributes(attrs...))
	})
}

func (r *recorder) retried(i zklock.LockInfo) {
	r.on(i.Call, false, func(k *call) {
		kind := errorTypeKey.String(errtype.Of(i.Err))
		k.span.AddEvent("retried", trace.WithAttributes(kind, messageKey.String(i.Err.Error())))
		r.metrics.retries.Add(k.ctx, 1, k.with(kind))
	})
}

func (r *recorder) acquired(i zklock.LockInfo) {
	joined := i.Joined != 0 // the hold is another call's
	r.on(i.Call, joined, func(k *call) {
		r.metrics.waits.Add(k.ctx, -1, k.with())
		r.metrics.waited.Record(k.ctx, i.Waited.Seconds(), k.with())
		ofHold := []attribute.KeyValue{tokenKey.Int64(int64(i.Token)), nodeKey.String(i.Node)}
		k.span.SetAttributes(ofHold...)
		if joined {
			k.span.SetAttributes(joinedKey.Int64(int64(i.Joined)))
		}
		k.span.End()
		if joined {
			return
		}
		r.metrics.holds.Add(k.ctx, 1, k.with())
		r.present.begin(numbered{r, i.Call}, k.set(), true)
		k.span = noop.Span{}
		if r.holds {
			_, k.span = r.tracer.Start(i.Context, "hold "+k.kind, trace.WithSpanKind(trace.SpanKindInternal),
				trace.WithAttributes(append(lockAttributes(i), ofHold...)...))
		}
	})
}

func (r *recorder) failed(i zklock.LockInfo) {
	r.on(i.Call, true, func(k *call) {
		kind := errtype.Of(i.Err)
		r.metrics.waits.Add(k.ctx, -1, k.with())
		r.metrics.waited.Record(k.ctx, i.Waited.Seconds(), k.with(errorTypeKey.String(kind)))
		k.span.SetAttributes(errorTypeKey.String(kind))
		if !i.Try || kind != errtype.Busy { // which is an answer, and no failure
			k.span.SetStatus(codes.Error, i.Err.Error())
		}
		k.span.End()
	})
}

func (r *recorder) released(i zklock.LockInfo) {
	r.on(i.Call, true, func(k *call) {
		r.metrics.holds.Add(k.ctx, -1, k.with())
		r.metrics.held.Record(k.ctx, i.Held.Seconds(), k.with(endKey.String("released")))
		if i.Err != nil { // it is released, and its znode may still be there
			k.span.AddEvent("release pending", trace.WithAttributes(messageKey.String(i.Err.Error())))
		}
		k.span.SetAttributes(endKey.String("released"))
		k.span.End()
	})
}

func (r *recorder) lost(i zklock.LockInfo) {
	r.on(i.Call, true, func(k *call) {
		kind, end := errtype.Of(i.Err), "lost"
		if kind == errtype.Closed { // by the program itself
			end = "closed"
		} else {
			r.metrics.losses.Add(k.ctx, 1, k.with(errorTypeKey.String(kind)))
			k.span.SetStatus(codes.Error, i.Err.Error())
		}
		r.metrics.holds.Add(k.ctx, -1, k.with())
		r.metrics.held.Record(k.ctx, i.Held.Seconds(), k.with(endKey.String(end), errorTypeKey.String(kind)))
		k.span.SetAttributes(endKey.String(end), errorTypeKey.String(kind))
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
	was, is := r.connected[i.ID], i.State == session.Connected
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
