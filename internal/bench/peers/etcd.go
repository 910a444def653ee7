package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/zklock/locker/internal/bench/load"
)

// etcd is concurrency.Mutex. It has no znodes, but keys that belong to a lease; and as its key is named after its
// lease, workers of one client that want the same lock need a lease each.
type etcd struct {
	*traffic
	raw bool // no lock: a key that belongs to a lease, put and deleted
}

type etcdClient struct {
	raw      bool
	c        *clientv3.Client
	ttl      int
	sessions *sessions
	keys     *atomic.Int64
}

func (e etcd) Open(ctx context.Context, server string, timeout time.Duration) (load.Client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(e.traffic)}})
	if err != nil {
		return nil, err
	}
	client := etcdClient{e.raw, c, int(math.Ceil(timeout.Seconds())), &sessions{}, &atomic.Int64{}}
	if _, err := client.session(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

func (c etcdClient) Locker(ctx context.Context, path string, shared bool) (load.Locker, error) {
	s := c.sessions.first()
	if c.raw {
		return &rawEtcd{c: c.c, lease: s.Lease(), key: fmt.Sprintf("%s/%x", path, c.keys.Add(1))}, nil
	}
	if shared {
		var err error
		if s, err = c.session(ctx); err != nil {
			return nil, err
		}
	}
	return etcdLock{concurrency.NewMutex(s, path)}, nil
}

// session opens one more session of the client's: a lease.
func (c etcdClient) session(ctx context.Context) (*concurrency.Session, error) {
	lease, err := c.c.Grant(ctx, int64(c.ttl))
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c.c, concurrency.WithLease(lease.ID), concurrency.WithTTL(c.ttl))
	if err != nil {
		return nil, err
	}
	c.sessions.add(s)
	return s, nil
}

// Close ends the leases, all at once, and then the connection.
func (c etcdClient) Close() error { return errors.Join(c.sessions.close(), c.c.Close()) }

type etcdLock struct{ m *concurrency.Mutex }

func (l etcdLock) Lock(ctx context.Context) error   { return l.m.Lock(ctx) }
func (l etcdLock) Unlock(ctx context.Context) error { return l.m.Unlock(ctx) }

// rawEtcd is etcd's floor: the least that its lock has to do.
type rawEtcd struct {
	c     *clientv3.Client
	lease clientv3.LeaseID
	key   string
}

func (r *rawEtcd) Lock(ctx context.Context) error {
	_, err := r.c.Put(ctx, r.key, "", clientv3.WithLease(r.lease))
	return err
}

func (r *rawEtcd) Unlock(ctx context.Context) error {
	_, err := r.c.Delete(ctx, r.key)
	return err
}
