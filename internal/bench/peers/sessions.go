package peers

import (
	"errors"
	"sync"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// sessions are the leases of one etcd client.
type sessions struct {
	mu  sync.Mutex // guards all
	all []*concurrency.Session
}

func (s *sessions) add(one *concurrency.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

func (s *sessions) first() *concurrency.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[0]
}

func (s *sessions) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(s.all))
	var closing sync.WaitGroup
	for i, one := range s.all {
		closing.Go(func() { errs[i] = one.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
