package zklock

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"
)

// defaultLog is where a Client's lines go without WithLogger: to slog's default, as that is when
// the line is written, as http.Server does without an ErrorLog. A library that nobody has
// configured must not flood a program's log, so lines below Info are left out, and of one message
// at most logBurst lines are written in logPeriod. The next line says how many were left out.
type defaultLog struct{ limits *logLimits }

const (
	logBurst  = 10
	logPeriod = time.Minute
)

// logLimits counts the lines of each message. The messages are this module's own, a few dozen.
type logLimits struct {
	mu    sync.Mutex // guards what follows
	lines map[string]*logCount
}

// logCount counts the lines of one message in the present period.
type logCount struct {
	began   time.Time
	written int
	leftOut int
}

func newDefaultLog() slog.Handler {
	return defaultLog{&logLimits{lines: map[string]*logCount{}}}
}

// take reports whether a line of the message may be written at now, and how many were left out
// before it.
func (l *logLimits) take(message string, now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.lines[message]
	if c == nil {
		c = &logCount{began: now}
		l.lines[message] = c
	}
	if now.Sub(c.began) >= logPeriod {
		c.began, c.written = now, 0
	}
	if c.written == logBurst {
		c.leftOut++
		return 0, false
	}
	c.written++
	leftOut = c.leftOut
	c.leftOut = 0
	return leftOut, true
}

// Enabled is that of slog's default, from Info on.
func (d defaultLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && slog.Default().Enabled(ctx, level)
}

// Handle passes r to slog's default, unless too many lines of its message were written lately.
func (d defaultLog) Handle(ctx context.Context, r slog.Record) error {
	leftOut, ok := d.limits.take(r.Message, r.Time)
	if !ok {
		return nil
	}
	if leftOut > 0 {
		r.AddAttrs(slog.Int("left_out_before", leftOut))
	}
	return slog.Default().Handler().Handle(ctx, r)
}

// WithAttrs is not used: this module's lines have all their attributes themselves.
func (d defaultLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slog.Default().Handler().WithAttrs(attrs)
}

// WithGroup is not used either.
func (d defaultLog) WithGroup(name string) slog.Handler {
	return slog.Default().Handler().WithGroup(name)
}

// tellsWaits reports whether the steps of a call's wait are told to a hook or the log. Warnings are
// logged in any case.
func (c *Client) tellsWaits(ctx context.Context) bool {
	return c.opts.hooks.Queued != nil || c.opts.hooks.Retried != nil ||
		c.log.Enabled(ctx, slog.LevelDebug)
}

// tell logs an event of a lock, with what i has of it, and then calls its hook, which may be nil.
// Package session logs the sessions' changes.
func (c *Client) tell(level slog.Level, event string, hook func(LockInfo), i LockInfo) {
	i.Paths = slices.Clone(i.Paths) // the hook's own
	if c.log.Enabled(i.Context, level) {
		c.log.LogAttrs(i.Context, level, "zklock: "+event, i.attrs()...)
	}
	if hook != nil {
		hook(i)
	}
}

// attrs returns what a log's line says of the call: its call, kind and path, and what else it has.
func (i LockInfo) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.Uint64("call", i.Call), slog.String("kind", string(i.Kind)),
		slog.String("path", i.Path)}
	for _, a := range []slog.Attr{
		slog.String("owner", i.Owner),
		slog.Int("permits", i.Permits),
		slog.Bool("try", i.Try),
		slog.Int("ahead", i.Ahead),
		slog.String("holder", i.HolderNode),
		slog.String("who", i.HolderOwner),
		slog.Int64("token", int64(i.Token)),
		slog.String("node", i.Node),
		slog.Uint64("joined", i.Joined),
		slog.Duration("waited", rounded(i.Waited)),
		slog.Duration("held", rounded(i.Held)),
		slog.Any("error", i.Err),
	} {
		if v := a.Value.Any(); v != nil && !reflect.ValueOf(v).IsZero() {
			attrs = append(attrs, a)
		}
	}
	return attrs
}

// rounded returns d as a reader wants it: three digits or so.
func rounded(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond, time.Millisecond,
		time.Microsecond} {
		if d >= 100*unit {
			return d.Round(unit)
		}
	}
	return d
}
