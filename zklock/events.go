package zklock

import (
	"errors"
	"log/slog"
	"sync/atomic"
)

// What happens to a lock is reported here, to the logger first and then to the hooks: Debug for the ordinary course, Warn
// for a loss. The session's own changes are logged by package session.

// lastCall numbers the calls of the process.
var lastCall atomic.Uint64

// tell logs an event of one lock, and calls its hook, which may be nil.
func tell[I any](c *Client, level slog.Level, event string, l *LockInfo, hook func(I), info I, more ...slog.Attr) {
	if c.log.Enabled(l.Context, level) {
		attrs := make([]slog.Attr, 0, 8+len(more))
		attrs = append(attrs, slog.Uint64("call", l.Call), slog.String("kind", string(l.Kind)), slog.String("path", l.Path))
		if l.Owner != "" {
			attrs = append(attrs, slog.String("owner", l.Owner))
		}
		if l.Permits > 0 {
			attrs = append(attrs, slog.Int("permits", l.Permits))
		}
		if l.Try {
			attrs = append(attrs, slog.Bool("try", true))
		}
		c.log.LogAttrs(l.Context, level, event, append(attrs, more...)...)
	}
	if hook != nil {
		hook(info)
	}
}

func (t Token) attr() slog.Attr { return slog.Int64("token", int64(t)) }

func (c *Client) tellAsked(i LockInfo) {
	tell(c, slog.LevelDebug, "lock asked for", &i, c.opts.hooks.Asked, i)
}

func (c *Client) tellQueued(i QueuedInfo) {
	tell(c, slog.LevelDebug, "lock queued", &i.LockInfo, c.opts.hooks.Queued, i,
		slog.Int("ahead", i.Ahead), slog.String("holder", i.Holder), slog.String("who", i.Who))
}

func (c *Client) tellAcquired(i AcquiredInfo) {
	event, more := "lock acquired", []slog.Attr{i.Token.attr(), slog.String("node", i.Node), slog.Duration("waited", i.Waited)}
	if i.Joined != 0 {
		event, more = "lock acquired again", append([]slog.Attr{slog.Uint64("joined", i.Joined)}, more[:2]...)
	}
	tell(c, slog.LevelDebug, event, &i.LockInfo, c.opts.hooks.Acquired, i, more...)
}

func (c *Client) tellFailed(i FailedInfo) {
	tell(c, slog.LevelDebug, "lock not acquired", &i.LockInfo, c.opts.hooks.Failed, i,
		slog.Duration("waited", i.Waited), slog.Any("error", i.Err))
}

func (c *Client) tellDowngraded(i DowngradedInfo) {
	tell(c, slog.LevelDebug, "lock downgraded", &i.LockInfo, c.opts.hooks.Downgraded, i,
		i.Token.attr(), slog.String("node", i.Node), slog.Duration("held", i.Held))
}

func (c *Client) tellAskedToRelease(i AskedToReleaseInfo) {
	tell(c, slog.LevelInfo, "lock asked to be released", &i.LockInfo, c.opts.hooks.AskedToRelease, i,
		i.Token.attr(), slog.String("by", i.By), slog.String("why", i.Why))
}

func (c *Client) tellReleased(i ReleasedInfo) {
	more := []slog.Attr{i.Token.attr(), slog.Duration("held", i.Held)}
	if i.Err != nil {
		more = append(more, slog.Any("error", i.Err))
	}
	tell(c, slog.LevelDebug, "lock released", &i.LockInfo, c.opts.hooks.Released, i, more...)
}

// tellLost warns of a loss, unless it is Close's doing.
func (c *Client) tellLost(i LostInfo) {
	level := slog.LevelWarn
	if errors.Is(i.Cause, ErrClosed) {
		level = slog.LevelInfo
	}
	tell(c, level, "lock lost", &i.LockInfo, c.opts.hooks.Lost, i,
		i.Token.attr(), slog.Duration("held", i.Held), slog.Any("cause", i.Cause))
}

func (c *Client) tellRetried(i RetriedInfo) {
	tell(c, slog.LevelDebug, "lock step retried", &i.LockInfo, c.opts.hooks.Retried, i, slog.Any("error", i.Err))
}
