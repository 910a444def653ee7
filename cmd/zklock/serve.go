package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/zktest"
)

func (a *app) serveCommand() *cobra.Command {
	var addr, like string
	cmd := &cobra.Command{
		Use:     "serve [flags]",
		GroupID: groupRest,
		Short:   "Serve as a ZooKeeper for tests, in memory",
		Long: `Serve as one ZooKeeper server on this machine, for tests in any language, until a signal arrives: it starts at once, needs
no Java, and speaks the protocol as a real server does. SIGINT and SIGTERM end it with 0. It prints its connect string when
it is ready. FOR TESTS ONLY: its data are in memory and GONE when it ends, and it is not replicated. --tick sets its ticks,
2s by default; sessions may last 2 to 20 of them.`,
		Example: `  zklock serve --addr 127.0.0.1:2181
  coproc ZK { exec zklock serve -q; }; read -r ZKLOCK_ZK <&"${ZK[0]}"; pytest; kill "$ZK_PID"   # bash`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !onLoopback(addr) {
				return usagef("--addr %s: want host:port on the loopback, "+
					"for example 127.0.0.1:2181", addr)
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return a.serve(ctx, addr, zktest.Version(like))
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:0",
		"`host:port` to listen at, on the loopback; port 0 is any that is free")
	cmd.Flags().StringVar(&like, "version-like", string(zktest.Version39),
		"behave like this `version` of ZooKeeper, 3.8 or 3.9")
	return cmd
}

// onLoopback reports whether addr is a host and a port on the loopback.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// versions are the versions of servers that serve can behave like.
var versions = []string{string(zktest.Version38), string(zktest.Version39)}

// serve runs a server until ctx ends or the server fails.
func (a *app) serve(ctx context.Context, addr string, like zktest.Version) (err error) {
	if !slices.Contains(versions, string(like)) {
		return usagef("--version-like %s: want one of %s", like, strings.Join(versions, ", "))
	}
	opts := []zktest.Option{zktest.WithAddr(addr), zktest.WithVersion(like)}
	if a.conn.tick != 0 {
		opts = append(opts, zktest.WithTick(a.conn.tick))
	}
	s, err := zktest.Start(opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if !a.quiet {
		notice(a.err, "FOR TESTS ONLY: all data are in memory, and gone when this ends")
	}
	if _, err := fmt.Fprintln(a.out, s.Addr()); err != nil {
		return err
	}
	<-ctx.Done()
	return s.Failure()
}
