package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// admin asks the server's HTTP port for administrators (AdminServer) for version, mode and tick.
func (x *examination) admin(ctx context.Context, v *Server) error {
	var stats struct {
		Version string `json:"version"`
		Server  struct {
			State string `json:"server_state"`
		} `json:"server_stats"`
	}
	var conf struct {
		Tick int `json:"tick_time"`
	}
	err := errors.Join(
		x.command(ctx, v.Addr, "server_stats", &stats),
		x.command(ctx, v.Addr, "configuration", &conf),
	)
	if err != nil {
		return err
	}
	tick := time.Duration(conf.Tick) * time.Millisecond
	if stats.Version == "" || tick <= 0 {
		return errors.New("the admin port does not tell both version and tick: another service's?")
	}
	v.Version, v.Mode, v.Tick = stats.Version, stats.Server.State, tick
	return nil
}

// command reads the admin port's answer to one command.
func (x *examination) command(ctx context.Context, addr, name string, into any) (err error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	url := "http://" + net.JoinHostPort(host, strconv.Itoa(x.AdminPort)) + "/commands/" + name
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into)
}
