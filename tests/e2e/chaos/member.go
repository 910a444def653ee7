package chaos

import (
	"errors"
	"runtime"

	"github.com/zklock/locker/tests/e2e/history"
)

// member is a client of a run: in this process, or in one of its own.
type member interface {
	// start begins a round; emit is called from any goroutine until finish has returned.
	start(o Orders, emit func(history.Op)) error
	// finish tells the workers that all was healed, and returns when each has completed its last
	// cycle.
	finish() error
	stats() (Stats, error)
	close() error
}

// Stats are a process's figures.
type Stats struct {
	Goroutines int
	Heap       uint64 // bytes in use after a collection
}

func ownStats() Stats {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Stats{Goroutines: runtime.NumGoroutine(), Heap: m.HeapAlloc}
}

// inside is a member in this process.
type inside struct {
	*site
	stop chan struct{}
	done chan error
}

func newInside(conf SiteConfig) (*inside, error) {
	s, err := openSite(conf)
	if err != nil {
		return nil, err
	}
	return &inside{site: s}, nil
}

func (m *inside) start(o Orders, emit func(history.Op)) error {
	if m.stop != nil {
		return errors.New("chaos: a round is under way")
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	m.stop, m.done = stop, done
	go func() { done <- m.round(stop, o, emit) }() // finish joins it
	return nil
}

func (m *inside) finish() error {
	if m.stop == nil {
		return nil
	}
	close(m.stop)
	m.stop = nil
	return <-m.done
}

func (m *inside) stats() (Stats, error) { return ownStats(), nil }

func (m *inside) close() error { return errors.Join(m.finish(), m.site.close()) }
