package peers

import (
	"context"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/stats"
)

// traffic counts etcd's messages as a tap counts ZooKeeper's: without those that only keep a lease alive.
type traffic struct{ requests, notifications atomic.Int64 }

func (t *traffic) Counts() (requests, notifications int64) {
	return t.requests.Load(), t.notifications.Load()
}

func (t *traffic) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.OutPayload:
		if _, ok := s.Payload.(*pb.LeaseKeepAliveRequest); !ok {
			t.requests.Add(1)
		}
	case *stats.InPayload:
		if r, ok := s.Payload.(*pb.WatchResponse); ok && len(r.Events) > 0 {
			t.notifications.Add(1)
		}
	}
}

func (*traffic) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*traffic) HandleConn(context.Context, stats.ConnStats)                       {}
