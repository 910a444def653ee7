package zklock

import "context"

// A nil context or function, and a Client, lock or hold that is nil or the zero value, are a programmer's errors that no input can
// cause. Each call panics then, before it does anything, and says which rule was broken.

func needContext(ctx context.Context) {
	if ctx == nil {
		panic("zklock: nil context")
	}
}

// needFunction is for a function that would be called under a lock.
func needFunction(missing bool) {
	if missing {
		panic("zklock: nil function")
	}
}

func (c *Client) need() {
	if c == nil || c.ctx == nil {
		panic("zklock: nil or zero Client: Dial returns one")
	}
}

// use returns what is inside of a lock of any kind, for a call with ctx.
func use[K any, P interface {
	*K
	inside() *lock
}](ctx context.Context, kind P) *lock {
	if kind == nil || kind.inside().c == nil {
		panic("zklock: nil or zero value of a lock, or one of a nil Client: Client.Mutex and its like return one")
	}
	kind.inside().c.need()
	needContext(ctx)
	return kind.inside()
}

func (l *lock) inside() *lock { return l }

func (h *Hold) need() {
	if h == nil || h.a == nil {
		panic("zklock: nil or zero Hold: Lock returns one when its error is nil")
	}
}

func (l *Leadership) need() {
	if l == nil {
		panic("zklock: nil Leadership: Campaign returns one when its error is nil")
	}
	l.Hold.need()
}
