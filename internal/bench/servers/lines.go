package servers

import (
	"context"
	"errors"
	"io"
	"log"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// lines reads the locks' queues from outside, so that a measurement can begin when all contenders are in line.
type lines struct {
	zk   *zk.Conn
	etcd *clientv3.Client
}

func (l *lines) open(addrs map[Kind][]string) (err error) {
	conn, events, err := zk.Connect(addrs[ZooKeeper], 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		return err
	}
	l.zk = conn
	go func() { // ends with the connection
		for range events { //nolint:revive // the channel must be drained
		}
	}()
	if len(addrs[Etcd]) > 0 {
		l.etcd, err = clientv3.New(clientv3.Config{Endpoints: addrs[Etcd], DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	}
	return err
}

func (l *lines) count(ctx context.Context, k Kind, path string) (int, error) {
	if k == Etcd {
		r, err := l.etcd.Get(ctx, path+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return 0, err
		}
		return int(r.Count), nil
	}
	if _, err := l.zk.Sync(path); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return 0, err
	}
	names, _, err := l.zk.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, nil
	}
	return len(names), err
}

func (l *lines) close() error {
	if l.zk != nil {
		l.zk.Close()
	}
	if l.etcd != nil {
		return l.etcd.Close()
	}
	return nil
}
