package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	mobynet "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/network"

	"github.com/zklock/locker/tests/ensemble"
)

// cluster is three containers. Each has a network for its clients, on which its port is published,
// and shares one with the other servers, from which it can be taken.
type cluster struct {
	engine *client.Client
	back   *testcontainers.DockerNetwork
	nodes  []*testcontainers.DockerContainer
}

// Containers starts three servers in containers. ErrNoDocker: there is no engine.
func Containers(ctx context.Context) (e *Ensemble, err error) {
	image, err := Image(ctx)
	if err != nil {
		return nil, err
	}
	if image != Official && os.Getenv("TESTCONTAINERS_RYUK_DISABLED") == "" {
		// Testcontainers' own helper, which removes what a killed test leaves, comes from a
		// registry as well.
		if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
			return nil, err
		}
	}
	log.SetDefault(quiet{})
	c := &cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.engine, err = engine(ctx); err != nil {
		return nil, err
	}
	if c.back, err = network.New(ctx, network.WithInternal()); err != nil {
		return nil, err
	}
	e = &Ensemble{Kind: "containers of " + image, Tick: Tick, close: c.close}
	for i := range 3 {
		addr, err := c.run(ctx, image, i)
		if err != nil {
			return nil, err
		}
		e.Addrs = append(e.Addrs, addr)
		e.Nodes = append(e.Nodes, ensemble.At(addr))
	}
	if err := e.await(serveBound); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.logs(ctx))
	}
	e.Control = c.control(e)
	return e, nil
}

func nodeName(i int) string { return "zk" + strconv.Itoa(i+1) }

// run starts the i-th container and returns the address at which it takes clients.
func (c *cluster) run(ctx context.Context, image string, i int) (string, error) {
	port, err := freePort() // a fixed one: a port that the engine chooses changes with every start
	if err != nil {
		return "", err
	}
	var all []string
	for j := range 3 {
		all = append(all, fmt.Sprintf("server.%d=%s:2888:3888;2181", j+1, nodeName(j)))
	}
	inside := mobynet.MustParsePort("2181/tcp")
	n, err := testcontainers.Run(ctx, image,
		testcontainers.WithEnv(map[string]string{
			"ZOO_MY_ID": strconv.Itoa(i + 1), "ZOO_SERVERS": strings.Join(all, " "),
			"ZOO_TICK_TIME": strconv.FormatInt(Tick.Milliseconds(), 10), "ZOO_SYNC_LIMIT": "4",
			"ZOO_INIT_LIMIT":       "20",
			"ZOO_MAX_CLIENT_CNXNS": "0", "ZOO_4LW_COMMANDS_WHITELIST": "srvr,ruok,mntr,wchs,conf",
			"ZOO_ADMINSERVER_ENABLED": "false",
			// its address changes when it comes back to the network
			"ZOO_CFG_EXTRA": "quorumListenOnAllIPs=true",
			// and the others must see the new one soon; the second: see package ensemble.
			"JVMFLAGS": "-Dsun.net.inetaddr.ttl=1 -Dzookeeper.forceSync=no -Dzookeeper.fastleader.maxNotificationInterval=400",
		}),
		testcontainers.WithConfigModifier(func(conf *container.Config) {
			conf.Hostname = nodeName(i)
		}),
		testcontainers.WithExposedPorts("2181/tcp"),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = mobynet.PortMap{inside: {{HostIP: netip.MustParseAddr("127.0.0.1"),
				HostPort: port}}}
		}),
		network.WithBridgeNetwork(),
		network.WithNetwork([]string{nodeName(i)}, c.back),
		testcontainers.WithLogger(quiet{}),
	)
	if n != nil {
		c.nodes = append(c.nodes, n)
	}
	return net.JoinHostPort("127.0.0.1", port), err
}

// quiet keeps testcontainers from writing between the lines of a run.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

var _ log.Logger = quiet{}

// freePort returns a port of the loopback address that nothing uses now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// control is what the engine's interface can do to a server.
func (c *cluster) control(e *Ensemble) Control {
	cut := make([]bool, len(c.nodes)) // from the others; the caller does one thing at a time
	request := func(do func(ctx context.Context, id string) error) func(int) error {
		return func(i int) error {
			ctx, cancel := context.WithTimeout(context.Background(), stepBound)
			defer cancel()
			return do(ctx, c.nodes[i].GetContainerID())
		}
	}
	start := request(func(ctx context.Context, id string) error {
		_, err := c.engine.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	})
	join := func(i int) error {
		return request(func(ctx context.Context, id string) error {
			_, err := c.engine.NetworkConnect(ctx, c.back.ID, client.NetworkConnectOptions{
				Container:      id,
				EndpointConfig: &mobynet.EndpointSettings{Aliases: []string{nodeName(i)}},
			})
			return err
		})(i)
	}
	heal := func() error {
		for i, is := range cut {
			if !is {
				continue
			}
			if err := join(i); err != nil {
				return err
			}
			cut[i] = false
		}
		return nil
	}
	// A signal to the server, which is the container's first process: the engine's own pause
	// freezes a control group, and gives up on a busy machine.
	signal := func(name string) func(int) error {
		return request(func(ctx context.Context, id string) error {
			_, err := c.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: name})
			return err
		})
	}
	return Control{
		Kill: request(func(ctx context.Context, id string) error {
			_, err := c.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
			return errors.Join(err, c.ended(ctx, id))
		}),
		Start:  start,
		Pause:  signal("STOP"),
		Resume: signal("CONT"),
		Isolate: func(i int) error {
			cut[i] = true
			return request(func(ctx context.Context, id string) error {
				_, err := c.engine.NetworkDisconnect(ctx, c.back.ID,
					client.NetworkDisconnectOptions{Container: id})
				return err
			})(i)
		},
		Heal: heal,
		Revive: func(atMost time.Duration) error {
			if err := heal(); err != nil {
				return err
			}
			return e.await(atMost)
		},
	}
}

// ended waits until a killed container has ended, so that it can be started.
func (c *cluster) ended(ctx context.Context, id string) error {
	for {
		is, err := c.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err != nil {
			return err
		}
		if !is.Container.State.Running {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("container %s still runs after it was killed: %w", id, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logs are the ends of the servers' logs, for messages.
func (c *cluster) logs(ctx context.Context) string {
	var b strings.Builder
	for i, n := range c.nodes {
		fmt.Fprintf(&b, "--- end of the log of server %d ---\n", i+1)
		r, err := n.Logs(ctx)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		text, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			fmt.Fprintln(&b, err)
		}
		b.Write(text[max(0, len(text)-3000):])
	}
	return b.String()
}

func (c *cluster) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*stepBound)
	defer cancel()
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Terminate(ctx, testcontainers.StopTimeout(0)))
	}
	if c.back != nil {
		errs = append(errs, c.back.Remove(ctx))
	}
	if c.engine != nil {
		errs = append(errs, c.engine.Close())
	}
	return errors.Join(errs...)
}

// Choose finds servers by itself: an ensemble that the environment names, else containers, else
// local processes. why says what was passed over.
func Choose(ctx context.Context) (e *Ensemble, why string, err error) {
	if e, named, err := Named(); named || err != nil {
		return e, "", err
	}
	e, err = Containers(ctx)
	if err == nil {
		return e, "", nil
	}
	why = fmt.Sprintf("no containers, so local processes: %v", err)
	e, err = Local()
	return e, why, err
}
