package otelzklock

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

// present is which calls wait or hold now, and since when.
type present struct {
	mu    sync.Mutex       // guards what follows; held for a map entry, or to look at all
	calls map[uint64]since // by LockInfo.Call
}

type since struct {
	attrs attribute.Set
	begin time.Time
	holds bool
}

// begin notes that a call waits, or holds, from now on.
func (p *present) begin(call uint64, attrs attribute.Set, holds bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[call] = since{attrs, time.Now(), holds}
}

func (p *present) end(call uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, call)
}

// oldest returns for each set of attributes how long the first of those has waited, or held, that still do.
func (p *present) oldest(holds bool) map[attribute.Set]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[attribute.Set]time.Duration{}
	for _, s := range p.calls {
		if s.holds == holds {
			all[s.attrs] = max(all[s.attrs], time.Since(s.begin))
		}
	}
	return all
}
