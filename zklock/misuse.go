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

func (l *lock) need(ctx context.Context) {
	l.needClient()
	needContext(ctx)
}

func (l *lock) needClient() {
	if l.c == nil {
		panic(noLock)
	}
	l.c.need()
}

const noLock = "zklock: nil or zero value of a lock, or one of a nil Client: Client.Mutex and its like return one"

// use returns the lock, and panics for a nil one, as those of the other kinds do.
func (m *Mutex) use() *lock {
	if m == nil {
		panic(noLock)
	}
	return &m.lock
}

func (m *RWMutex) use() *lock {
	if m == nil {
		panic(noLock)
	}
	return &m.lock
}

func (m *MultiLock) use() *lock {
	if m == nil {
		panic(noLock)
	}
	return &m.lock
}

func (s *Semaphore) use() *lock {
	if s == nil {
		panic(noLock)
	}
	return &s.lock
}

func (o *Once) use() *lock {
	if o == nil {
		panic(noLock)
	}
	return &o.m.lock
}

func (e *Election) use() *lock {
	if e == nil {
		panic(noLock)
	}
	return &e.lock
}

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
