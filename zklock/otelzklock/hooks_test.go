package otelzklock_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/otelzklock"
	"github.com/zklock/locker/zktest"
)

func TestWaitsAndHoldsAreMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, r *record, c *zklock.Client) {
		theirs := locktest.Lock(t, locktest.Dial(t, srv).Mutex("/l"))
		got := make(chan *zklock.Hold, 1)
		go func() {
			_, h, err := c.Mutex("/l").Lock(context.Background())
			if err == nil {
				got <- h
			}
			close(got)
		}()
		time.Sleep(3 * time.Second)
		require.Equal(t, []point{{"zklock.lock.kind=mutex", 0, 1}},
			r.metric(t, "zklock.lock.wait.count"))
		require.Equal(t, []point{{"zklock.lock.kind=mutex", 0, 3}},
			r.metric(t, "zklock.lock.wait.oldest"))
		require.Empty(t, r.metric(t, "zklock.lock.hold.count"))
		require.Empty(t, r.metric(t, "zklock.lock.hold.oldest"))
		require.NoError(t, theirs.Unlock())
		h, held := <-got
		require.True(t, held)
		require.Empty(t, r.metric(t, "zklock.lock.wait.count"))
		require.Equal(t, []point{{"zklock.lock.kind=mutex", 0, 1}},
			r.metric(t, "zklock.lock.hold.count"))
		require.Equal(t, []point{{"zklock.lock.kind=mutex", 1, 3}},
			r.metric(t, "zklock.lock.wait.duration"))
		require.Empty(t, r.metric(t, "zklock.lock.wait.oldest"))
		time.Sleep(time.Minute)
		require.Equal(t, []point{{"zklock.lock.kind=mutex", 0, 60}},
			r.metric(t, "zklock.lock.hold.oldest"))
		require.NoError(t, h.Unlock())
		require.Empty(t, r.metric(t, "zklock.lock.hold.count"))
		require.Empty(t, r.metric(t, "zklock.lock.hold.oldest"))
		require.Equal(t, []point{{"zklock.lock.end=released,zklock.lock.kind=mutex", 1, 60}},
			r.metric(t, "zklock.lock.hold.duration"))
		require.Empty(t, r.metric(t, "zklock.lock.losses"))
		require.Equal(t, []point{{"", 0, 1}}, r.metric(t, "zklock.session.count"))
		require.Equal(t, []point{{"zklock.session.state=connected", 0, 1}},
			r.metric(t, "zklock.session.changes"))
	})
}

func TestSpansBelongToTheTraceOfTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, r *record, c *zklock.Client) {
		theirs := locktest.Lock(t, locktest.Dial(t, srv).Mutex("/l", zklock.WithOwner("they")))
		ctx, request := r.tracer.Tracer("test").Start(locktest.Soon(t), "request")
		got := make(chan *zklock.Hold, 1)
		go func() {
			_, h, err := c.Mutex("/l", zklock.WithOwner("me"),
				zklock.WithMaxWait(time.Minute)).Lock(ctx)
			if err == nil {
				got <- h
			}
			close(got)
		}()
		time.Sleep(time.Second)
		require.NoError(t, theirs.Unlock())
		h, held := <-got
		require.True(t, held)
		time.Sleep(time.Second)
		request.End()
		require.NoError(t, h.Unlock())

		parent := r.span(t, "request").SpanContext
		wait := r.span(t, "lock mutex")
		require.Equal(t, trace.SpanKindClient, wait.SpanKind)
		require.Equal(t, time.Second, wait.EndTime.Sub(wait.StartTime))
		require.Equal(t, []string{"queued", "queued"}, eventNames(wait))
		require.Equal(t,
			map[string]string{"zklock.lock.ahead": "1", "zklock.lock.holder": theirs.Node()},
			attrs(wait.Events[0].Attributes))
		require.True(t,
			strings.HasPrefix(attrs(wait.Events[1].Attributes)["zklock.lock.who"], "they ("))
		hold := r.span(t, "hold mutex")
		require.Equal(t, time.Second, hold.EndTime.Sub(hold.StartTime))
		for _, s := range []tracetest.SpanStub{wait, hold} {
			require.Equal(t, parent.TraceID(), s.SpanContext.TraceID())
			require.Equal(t, parent.SpanID(), s.Parent.SpanID())
			require.Equal(t, codes.Unset, s.Status.Code)
			a := attrs(s.Attributes)
			require.Equal(t, "/l", a["zklock.lock.path"])
			require.Equal(t, "me", a["zklock.lock.owner"])
			require.Equal(t, "mutex", a["zklock.lock.kind"])
			require.Equal(t, h.Node(), a["zklock.lock.node"])
			require.NotEmpty(t, a["zklock.call"])
		}
		require.Equal(t, "released", attrs(hold.Attributes)["zklock.lock.end"])
	})
}

type act func(t *testing.T, srv *zktest.Server, c *zklock.Client)

// mishaps are calls and holds that end badly, and what is recorded of each.
var mishaps = map[string]struct {
	act    act
	span   string
	typ    string
	status codes.Code
	wait   bool // otherwise it is a hold
	end    string
}{
	"busy": {func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
		locktest.Lock(t, locktest.Dial(t, srv).Mutex("/l"))
		_, _, err := c.Mutex("/l", zklock.WithMaxWait(time.Second)).Lock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrBusy)
	}, "lock mutex", "busy", codes.Error, true, ""},
	"busy for TryLock, no failure": {func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
		locktest.Lock(t, locktest.Dial(t, srv).Mutex("/l"))
		_, _, err := c.Mutex("/l").TryLock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrBusy)
	}, "lock mutex", "busy", codes.Unset, true, ""},
	"out of time": {func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
		locktest.Lock(t, locktest.Dial(t, srv).Mutex("/l"))
		_, _, err := c.Mutex("/l").Lock(locktest.Within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}, "lock mutex", "timeout", codes.Error, true, ""},
	"another kind of lock": {func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
		_, _, err := locktest.Dial(t, srv).RWMutex("/l").RLock(locktest.Soon(t))
		require.NoError(t, err)
		_, _, err = c.Mutex("/l").Lock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrConflict)
	}, "lock mutex", "conflict", codes.Error, true, ""},
	"deleted": {func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
		h := locktest.Lock(t, c.Mutex("/l"))
		time.Sleep(time.Second)
		require.NoError(t, srv.Delete(h.Node()))
		<-h.Context().Done()
	}, "hold mutex", "node_deleted", codes.Error, false, "lost"},
	"held for too long": {func(t *testing.T, _ *zktest.Server, c *zklock.Client) {
		<-locktest.Lock(t, c.Mutex("/l", zklock.WithMaxHold(time.Second))).Context().Done()
	}, "hold mutex", "max_hold", codes.Error, false, "lost"},
	"cut off": {func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
		h := locktest.Lock(t, c.Mutex("/l"))
		srv.Leader().Down()
		<-h.Context().Done()
	}, "hold mutex", "lease_expired", codes.Error, false, "lost"},
	"closed by the program, no loss": {func(t *testing.T, _ *zktest.Server, c *zklock.Client) {
		locktest.Lock(t, c.Mutex("/l"))
		require.NoError(t, c.Close())
	}, "hold mutex", "closed", codes.Unset, false, "closed"},
}

func TestEveryErrorHasItsTypeInSpansAndMetrics(t *testing.T) {
	for name, k := range mishaps {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server, r *record, c *zklock.Client) {
				k.act(t, srv, c)
				s := r.span(t, k.span)
				require.Equal(t, k.typ, attrs(s.Attributes)["error.type"])
				require.Equal(t, k.status, s.Status.Code)
				require.Equal(t, k.end, attrs(s.Attributes)["zklock.lock.end"])
				require.Empty(t, r.metric(t, "zklock.lock.wait.count"))
				require.Empty(t, r.metric(t, "zklock.lock.hold.count"))
				want := "error.type=" + k.typ + ",zklock.lock.kind=mutex"
				if k.wait {
					require.Equal(t, want, r.metric(t, "zklock.lock.wait.duration")[0].attrs)
					return
				}
				require.Equal(t,
					"error.type="+k.typ+",zklock.lock.end="+k.end+",zklock.lock.kind=mutex",
					r.metric(t, "zklock.lock.hold.duration")[0].attrs)
				if k.end == "lost" {
					require.Equal(t, []point{{want, 0, 1}}, r.metric(t, "zklock.lock.losses"))
				} else {
					require.Empty(t, r.metric(t, "zklock.lock.losses"))
				}
			})
		})
	}
}

func TestEndedSessionsAndRetriesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, r *record, c *zklock.Client) {
		theirs := locktest.Lock(t, locktest.Dial(t, srv).Mutex("/l"))
		got := make(chan *zklock.Hold, 1)
		go func() {
			if _, h, err := c.Mutex("/l").Lock(context.Background()); err == nil {
				got <- h
			}
			close(got)
		}()
		time.Sleep(5 * time.Second)
		s, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		require.NoError(t, srv.Expire(s.ID()))
		time.Sleep(5 * time.Second)
		require.NoError(t, theirs.Unlock())
		h, held := <-got
		require.True(t, held)
		require.NoError(t, h.Unlock())
		require.Contains(t, eventNames(r.span(t, "lock mutex")), "retried")
		require.NotEmpty(t, r.metric(t, "zklock.lock.retries"),
			"once or twice: the znode's end may be heard of before the session's")
		require.Contains(t, r.metric(t, "zklock.session.changes"),
			point{"error.type=session_expired,zklock.session.state=over", 0, 1})
		require.Contains(t, r.metric(t, "zklock.session.changes"),
			point{"zklock.session.state=connected", 0, 2})
		require.Equal(t, []point{{"", 0, 1}}, r.metric(t, "zklock.session.count"))
		require.NoError(t, c.Close())
		require.Empty(t, r.metric(t, "zklock.session.count"))
	})
}

func TestOptions(t *testing.T) {
	classes := otelzklock.WithMetricAttributes(func(i zklock.LockInfo) []attribute.KeyValue {
		class, _, _ := strings.Cut(strings.TrimPrefix(i.Path, "/"), "/")
		return []attribute.KeyValue{attribute.String("class", class)}
	})
	bubble(t, func(t *testing.T, srv *zktest.Server, r *record, c *zklock.Client) {
		require.NoError(t, locktest.Lock(t, c.Mutex("/approvals/1")).Unlock())
		require.NoError(t, locktest.Lock(t, c.Mutex("/approvals/2")).Unlock())
		require.NoError(t, locktest.Lock(t, c.Mutex("/reports/1")).Unlock())
		points := r.metric(t, "zklock.lock.wait.duration")
		require.Len(t, points, 2)
		require.Equal(t, point{"class=approvals,zklock.lock.kind=mutex", 2, points[0].sum},
			points[0])
		require.Equal(t, "class=reports,zklock.lock.kind=mutex", points[1].attrs)
		require.Equal(t, []string{"lock mutex", "lock mutex", "lock mutex"}, r.names())
	},
		classes,
		otelzklock.WithoutHoldSpans(),
		otelzklock.WithMetricAttributes(nil),
		otelzklock.Option{})
}

func TestHooksWithTheGlobalProvidersDoNothingByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		hooks := otelzklock.Hooks(
			otelzklock.WithTracerProvider(nil),
			otelzklock.WithMeterProvider(nil))
		c := locktest.Dial(t, srv, zklock.WithHooks(hooks))
		require.NoError(t, locktest.Lock(t, c.Mutex("/l")).Unlock())
	})
}

// Whatever many callers do at once, the levels are back at zero in the end.
func TestLevelsReturnToZero(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, r *record, c *zklock.Client) {
		var calls sync.WaitGroup
		for i := range 16 {
			calls.Go(func() {
				for n := range 10 {
					m := c.RWMutex("/l"+strconv.Itoa((i+n)%3),
						zklock.WithMaxWait(time.Duration(n*5)*time.Millisecond),
						zklock.WithMaxHold(20*time.Millisecond))
					_, h, err := m.Lock(context.Background())
					if err != nil {
						continue
					}
					time.Sleep(time.Duration(i) * 2 * time.Millisecond)
					_ = h.Unlock() // it may be lost by now: that is one of the cases
				}
			})
		}
		calls.Wait()
		require.NoError(t, c.Close())
		require.Empty(t, r.metric(t, "zklock.lock.wait.count"))
		require.Empty(t, r.metric(t, "zklock.lock.hold.count"))
		require.Empty(t, r.metric(t, "zklock.session.count"))
		var waits uint64
		for _, p := range r.metric(t, "zklock.lock.wait.duration") {
			waits += p.count
		}
		require.EqualValues(t, 160, waits)
	})
}

// An increase from nothing is none: a counter of what alerts are about begins with 0.
func TestCountersBeginWithZero(t *testing.T) {
	r := newRecord()
	r.hooks().Asked(zklock.LockInfo{Call: 1, Kind: "mutex", Context: t.Context()})
	var all metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(t.Context(), &all))
	zeros := map[string]int{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range sum.DataPoints {
				if p.Value == 0 {
					zeros[m.Name]++
				}
			}
		}
	}
	require.Equal(t, map[string]int{
		"zklock.session.count":   1,
		"zklock.session.changes": 1,
		"zklock.lock.losses":     6,
	}, zeros)
}
