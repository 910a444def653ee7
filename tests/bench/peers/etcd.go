package peers

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/zklock/locker/tests/bench/load"
)

// etcd is concurrency.Mutex. It has no znodes, but keys that belong to a lease; and as its key is
// named after its lease, workers of one client that want the same lock need a lease each.
type etcd struct{}

type etcdClient struct {
	c        *clientv3.Client
	ttl      int
	sessions []*concurrency.Session // the first one is for locks that workers do not share
}

func (etcd) Open(ctx context.Context, server string, timeout time.Duration) (load.Client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server},
		DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	client := &etcdClient{c: c, ttl: int(math.Ceil(timeout.Seconds()))}
	if _, err := client.session(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

func (c *etcdClient) Locker(ctx context.Context, path string, shared bool) (load.Locker, error) {
	s := c.sessions[0]
	if shared {
		var err error
		if s, err = c.session(ctx); err != nil {
			return nil, err
		}
	}
	return concurrency.NewMutex(s, path), nil
}

// session opens one more session of the client's: a lease.
func (c *etcdClient) session(ctx context.Context) (*concurrency.Session, error) {
	lease, err := c.c.Grant(ctx, int64(c.ttl))
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c.c, concurrency.WithLease(lease.ID),
		concurrency.WithTTL(c.ttl))
	if err == nil {
		c.sessions = append(c.sessions, s)
	}
	return s, err
}

// Close ends the leases, all at once, and then the connection.
func (c *etcdClient) Close() error {
	errs := make([]error, len(c.sessions))
	var closing sync.WaitGroup
	for i, s := range c.sessions {
		closing.Go(func() { errs[i] = s.Close() })
	}
	closing.Wait()
	return errors.Join(append(errs, c.c.Close())...)
}
