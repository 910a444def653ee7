package zklock

import (
	"errors"
	"log/slog"
	"sync/atomic"
)

// What happens to a lock is told here, to the logger first and then to the hooks: Debug for the ordinary course, Warn
// for a loss. The session's own changes are logged by package session.

// lastCall numbers the calls of the process.
var lastCall atomic.Uint64

// note logs an event of one lock.
func (c *Client) note(level slog.Level, event string, info *LockInfo, more ...slog.Attr) {
	if !c.log.Enabled(info.Context, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 8+len(more))
	attrs = append(attrs, slog.Uint64("call", info.Call), slog.String("kind", string(info.Kind)), slog.String("path", info.Path))
	if info.Owner != "" {
		attrs = append(attrs, slog.String("owner", info.Owner))
	}
	if info.Permits > 0 {
		attrs = append(attrs, slog.Int("permits", info.Permits))
	}
	if info.Try {
		attrs = append(attrs, slog.Bool("try", true))
	}
	c.log.LogAttrs(info.Context, level, event, append(attrs, more...)...)
}

func (c *Client) tellAsked(i LockInfo) {
	c.note(slog.LevelDebug, "lock asked for", &i)
	call(c.opts.hooks.Asked, i)
}

func (c *Client) tellQueued(i QueuedInfo) {
	c.note(slog.LevelDebug, "lock queued", &i.LockInfo, slog.Int("ahead", i.Ahead), slog.String("holder", i.Holder),
		slog.String("who", i.Who))
	call(c.opts.hooks.Queued, i)
}

func (c *Client) tellAcquired(i AcquiredInfo) {
	if i.Joined != 0 {
		c.note(slog.LevelDebug, "lock acquired again", &i.LockInfo, slog.Uint64("joined", i.Joined),
			slog.Int64("token", int64(i.Token)), slog.String("node", i.Node))
	} else {
		c.note(slog.LevelDebug, "lock acquired", &i.LockInfo, slog.Int64("token", int64(i.Token)),
			slog.String("node", i.Node), slog.Duration("waited", i.Waited))
	}
	call(c.opts.hooks.Acquired, i)
}

func (c *Client) tellFailed(i FailedInfo) {
	c.note(slog.LevelDebug, "lock not acquired", &i.LockInfo, slog.Duration("waited", i.Waited), slog.Any("error", i.Err))
	call(c.opts.hooks.Failed, i)
}

func (c *Client) tellDowngraded(i DowngradedInfo) {
	c.note(slog.LevelDebug, "lock downgraded", &i.LockInfo, slog.Int64("token", int64(i.Token)),
		slog.String("node", i.Node), slog.Duration("held", i.Held))
	call(c.opts.hooks.Downgraded, i)
}

func (c *Client) tellAskedToRelease(i AskedToReleaseInfo) {
	c.note(slog.LevelInfo, "lock asked to be released", &i.LockInfo, slog.Int64("token", int64(i.Token)),
		slog.String("by", i.By), slog.String("why", i.Why))
	call(c.opts.hooks.AskedToRelease, i)
}

func (c *Client) tellReleased(i ReleasedInfo) {
	more := []slog.Attr{slog.Int64("token", int64(i.Token)), slog.Duration("held", i.Held)}
	if i.Err != nil {
		more = append(more, slog.Any("error", i.Err))
	}
	c.note(slog.LevelDebug, "lock released", &i.LockInfo, more...)
	call(c.opts.hooks.Released, i)
}

// tellLost warns of a loss, unless it is Close's doing.
func (c *Client) tellLost(i LostInfo) {
	level := slog.LevelWarn
	if errors.Is(i.Cause, ErrClosed) {
		level = slog.LevelInfo
	}
	c.note(level, "lock lost", &i.LockInfo, slog.Int64("token", int64(i.Token)), slog.Duration("held", i.Held),
		slog.Any("cause", i.Cause))
	call(c.opts.hooks.Lost, i)
}

func (c *Client) tellRetried(i RetriedInfo) {
	c.note(slog.LevelDebug, "lock step retried", &i.LockInfo, slog.Any("error", i.Err))
	call(c.opts.hooks.Retried, i)
}
