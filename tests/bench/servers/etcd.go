package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// cluster is etcd servers on loopback.
type cluster struct {
	addrs   []string
	version string
	procs   []*exec.Cmd
}

func etcdInstalled() bool {
	_, err := exec.LookPath("etcd")
	return err == nil
}

// startEtcd starts servers with their default configuration.
func startEtcd(ctx context.Context, dir string, nodes int) (c *cluster, err error) {
	c = &cluster{}
	defer func() {
		if err != nil {
			c.close()
			for _, p := range c.procs {
				log := p.Stderr.(*bytes.Buffer).Bytes()
				err = fmt.Errorf("%w\n---\n%s", err, log[max(0, len(log)-1000):])
			}
		}
	}()
	ports, err := freePorts(2 * nodes)
	if err != nil {
		return c, err
	}
	url := func(port int) string { return fmt.Sprint("http://127.0.0.1:", port) }
	var initial []string
	for i := range nodes {
		initial = append(initial, fmt.Sprintf("n%d=%s", i, url(ports[2*i+1])))
	}
	for i := range nodes {
		client, peer := url(ports[2*i]), url(ports[2*i+1])
		cmd := exec.Command("etcd", "--name", fmt.Sprint("n", i), "--data-dir",
			filepath.Join(dir, fmt.Sprint("etcd-", i)),
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(initial,
				","), "--initial-cluster-token", dir, "--log-level", "error")
		cmd.Stderr = &bytes.Buffer{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return c, err
		}
		c.procs, c.addrs = append(c.procs, cmd), append(c.addrs,
			strings.TrimPrefix(client, "http://"))
	}
	return c, c.await(ctx)
}

func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all at once, so that no two are the same
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// await returns when every server has answered a linearizable read.
func (c *cluster) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, addr := range c.addrs {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr},
			DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		for err = errors.New("not up yet"); err != nil && ctx.Err() == nil; {
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err = client.Get(try, "x")
			cancel()
		}
		if err == nil {
			var status *clientv3.StatusResponse
			if status, err = client.Status(ctx, addr); err == nil {
				c.version = "etcd " + status.Version
			}
		}
		if err := errors.Join(err, client.Close()); err != nil {
			return fmt.Errorf("etcd server %s: %w", addr, err)
		}
	}
	return nil
}

func (c *cluster) close() {
	for _, p := range c.procs {
		// it may have ended already, and its exit code does not matter any more
		_ = p.Process.Kill()
		_ = p.Wait()
	}
}
