package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/tests/bench/load"
)

// driver is a plain connection of go-zookeeper: for the floor, and for the lock that comes with it.
type driver struct {
	locker func(c *zk.Conn, path string) (load.Locker, error)
}

type driverClient struct {
	driver
	conn *zk.Conn
}

// Open ends with a session, as every contestant's does.
func (d driver) Open(
	ctx context.Context, server string, timeout time.Duration,
) (load.Client, error) {
	conn, events, err := zk.Connect([]string{server}, timeout, zk.WithLogInfo(false),
		zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		return nil, err
	}
	for conn.State() != zk.StateHasSession {
		select {
		case <-events:
		case <-ctx.Done():
			conn.Close()
			return nil, fmt.Errorf("waiting for a session: %w", ctx.Err())
		}
	}
	go func() { // ends with the connection
		for range events { //nolint:revive // the channel must be drained
		}
	}()
	return driverClient{d, conn}, nil
}

func (c driverClient) Locker(_ context.Context, path string, _ bool) (load.Locker, error) {
	return c.locker(c.conn, path)
}

func (c driverClient) Close() error { c.conn.Close(); return nil }

// driverLock is zk.Lock.
type driverLock struct{ l *zk.Lock }

func newDriverLock(c *zk.Conn, path string) (load.Locker, error) {
	return driverLock{zk.NewLock(c, path, zk.WorldACL(zk.PermAll))}, nil
}

func (l driverLock) Lock(context.Context) error   { return l.l.LockWithData(data) }
func (l driverLock) Unlock(context.Context) error { return l.l.Unlock() }

// raw is the floor: the least that any lock of this recipe has to do, without the lock. It excludes
// no one.
type raw struct {
	c         *zk.Conn
	path, own string
}

func newRaw(c *zk.Conn, path string) (load.Locker, error) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if _, err := c.Create(path[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil &&
			!errors.Is(err, zk.ErrNodeExists) {
			return nil, err
		}
	}
	return &raw{c: c, path: path + "/" + strings.Repeat("x", nameLen)}, nil
}

// nameLen is the length of a contender's name without its number: "_c_", a UUID, "-lock-".
const nameLen = 45

func (r *raw) Lock(context.Context) (err error) {
	r.own, err = r.c.Create(r.path, data, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	return err
}

func (r *raw) Unlock(context.Context) error { return r.c.Delete(r.own, -1) }
