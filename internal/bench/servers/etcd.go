package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// cluster is three etcd servers on loopback.
type cluster struct {
	addrs   []string
	version string
	procs   []*exec.Cmd
	logs    []string
}

// attempts at starting: another process may take a free port between its choice and its use.
const attempts = 3

// EtcdInstalled reports whether etcd is installed.
func EtcdInstalled() bool {
	_, err := exec.LookPath("etcd")
	return err == nil
}

func startEtcd(ctx context.Context, dir string, nodes int) (*cluster, error) {
	var errs []error
	for i := range attempts {
		c, err := tryEtcd(ctx, filepath.Join(dir, fmt.Sprint("etcd-", i)), nodes)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err, c.close())
	}
	return nil, errors.Join(errs...)
}

// tryEtcd starts servers with their default configuration. On an error it also returns what it has started.
func tryEtcd(ctx context.Context, dir string, nodes int) (*cluster, error) {
	c := &cluster{}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c, err
	}
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
		logFile := filepath.Join(dir, fmt.Sprint(i, ".log"))
		cmd := exec.Command("etcd", "--name", fmt.Sprint("n", i), "--data-dir", filepath.Join(dir, fmt.Sprint(i)),
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-token", dir, "--log-level", "error")
		log, err := os.Create(logFile)
		if err != nil {
			return c, err
		}
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, dieWithParent()
		if err := errors.Join(cmd.Start(), log.Close()); err != nil {
			return c, err
		}
		c.procs, c.logs = append(c.procs, cmd), append(c.logs, logFile)
		c.addrs = append(c.addrs, strings.TrimPrefix(client, "http://"))
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
		if err := c.awaitOne(ctx, addr); err != nil {
			return fmt.Errorf("etcd server %s: %w\n%s", addr, err, c.tail())
		}
	}
	return nil
}

func (c *cluster) awaitOne(ctx context.Context, addr string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	for err == nil {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		if _, err = client.Get(try, "x"); err == nil {
			var status *clientv3.StatusResponse
			if status, err = client.Status(try, addr); err == nil {
				c.version = "etcd " + status.Version
			}
			cancel()
			break
		}
		cancel()
		if ctx.Err() == nil {
			err = nil // it is not up yet
		}
	}
	return errors.Join(err, client.Close())
}

// tail is the end of the servers' logs.
func (c *cluster) tail() string {
	var all []string
	for _, name := range c.logs {
		b, err := os.ReadFile(name)
		if err != nil {
			b = []byte(err.Error())
		}
		all = append(all, string(bytes.TrimSpace(b[max(0, len(b)-1000):])))
	}
	return strings.Join(all, "\n---\n")
}

func (c *cluster) close() error {
	var errs []error
	for _, p := range c.procs {
		if err := p.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		var exit *exec.ExitError
		if err := p.Wait(); err != nil && !errors.As(err, &exit) {
			errs = append(errs, err)
		}
	}
	c.procs = nil
	return errors.Join(errs...)
}
