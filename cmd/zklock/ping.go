package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/zklock"
)

func (a *app) pingCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ping [flags]",
		GroupID: groupLook,
		Short:   "Show whether the ensemble answers, and how fast",
		Long: `Connect, and show the server that answered, its version if it answers "srvr", the session timeout that was granted, and how
long a read and a write took. The write goes to the leader and its quorum; it deletes a znode that does not exist, and so
changes nothing and needs no rights. It ends with 69 when no server answers, or a read or a write is not answered within
--connect-timeout, and with 77 when the credentials are refused.`,
		Example: "  zklock ping\n  zklock ping --zk zk1:2181 --connect-timeout 2s || echo down",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.with(a.ping) },
	}
}

func (a *app) ping(ctx context.Context, c *zklock.Client) error {
	ctx, cancel := context.WithTimeout(ctx, a.conn.patience)
	defer cancel()
	s, err := c.Session(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := s.Exists(ctx, "/"); err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	read := time.Since(began)
	server := s.Server()
	began = time.Now()
	err = s.Delete(ctx, fmt.Sprintf("/zklock-ping-%x", began.UnixNano()), -1)
	if !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	write := time.Since(began)
	if a.quiet {
		return nil
	}
	_, err = fmt.Fprintf(a.out, "server   %s\nversion  %s\nsession  %s\ntimeout  %v (asked for %v)\nread     %v\nwrite    %v\n",
		dash(server), a.serverVersion(ctx, server), sessionID(s.ID()), s.Timeout(), a.conn.timeout,
		read.Round(10*time.Microsecond), write.Round(10*time.Microsecond))
	return err
}

// serverVersion is a server's answer to "srvr", or why it is unknown.
func (a *app) serverVersion(ctx context.Context, server string) string {
	conf, err := a.conn.tlsConfig()
	var conn net.Conn
	switch {
	case err != nil:
	case conf == nil:
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", server)
	default:
		conn, err = (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", server)
	}
	if err != nil {
		return short("unknown: "+err.Error(), 200)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err == nil {
		_, _ = io.WriteString(conn, "srvr") // a failure shows below
	}
	text, err := bufio.NewReader(io.LimitReader(conn, 1000)).ReadString('\n')
	if version, ok := strings.CutPrefix(text, "Zookeeper version: "); ok && err == nil {
		version, _, _ = strings.Cut(strings.TrimSpace(version), ",")
		return short(version, 100)
	}
	return `unknown: the server does not answer "srvr" (4lw.commands.whitelist)`
}
