package zklock

import "context"

// A nil context, and a Client, lock or hold that is nil or the zero value, are a programmer's errors that no input can
// cause. Each call panics then, before it does anything, and says which rule was broken.

func needContext(ctx context.Context) {
	if ctx == nil {
		panic("zklock: nil context")
	}
}

func (c *Client) need() {
	if c == nil || c.ctx == nil {
		panic("zklock: nil or zero Client: Dial returns one")
	}
}

func (b *base) need(ctx context.Context) {
	b.needClient()
	needContext(ctx)
}

func (b *base) needClient() {
	if b.c == nil {
		panic("zklock: zero value of a lock, or one of a nil Client: Client.Mutex and its like return one")
	}
	b.c.need()
}

func (h *Hold) need(ctx context.Context) {
	if h == nil || h.g == nil {
		panic("zklock: nil or zero Hold: Lock returns one when its error is nil")
	}
	needContext(ctx)
}
