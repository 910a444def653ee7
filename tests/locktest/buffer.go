package locktest

import (
	"bytes"
	"context"
	"sync"
)

// Buffer keeps what is written, and is read meanwhile.
type Buffer struct {
	mu  sync.Mutex // guards all
	all bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// Reset forgets what was written.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all.Reset()
}

// LateContext holds up a call that is about to wait until Gate is open: then what it waits for, and
// an end, have both come.
type LateContext struct {
	context.Context
	Gate <-chan struct{}
}

func (c LateContext) Done() <-chan struct{} {
	<-c.Gate
	return c.Context.Done()
}
