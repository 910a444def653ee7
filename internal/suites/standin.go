package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/zklock/locker/zktest"
)

// A suite starts each server as a process with a configuration file. The process is a stand-in: over a connection that
// lasts as long as it does, it names its ensemble and member to the controller, and forwards the connections of its
// client port to that member. When the connection ends, the member is down.

// controlVariable names the environment variable with the controller's address.
const controlVariable = "ZKTEST_SUITES_CONTROL"

// standIn is one server's process, until a signal.
func standIn(control, config string) error {
	key, id, port, err := readConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", control)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is lost with it
	if _, err := fmt.Fprintf(c, "%s %s\n", key, id); err != nil {
		return err
	}
	told := bufio.NewReader(c)
	member, err := told.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the controller has no member %s of %s: %w", id, key, err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() }) // whatever it returns, Accept ends; so below
	go func() {                                      // ends with the controller, which sends no more, or with the process
		_, _ = told.ReadByte()
		_ = l.Close()
	}()
	for {
		from, err := l.Accept()
		if err != nil {
			return nil //nolint:nilerr // the signal has closed it
		}
		to, err := d.DialContext(ctx, "tcp", strings.TrimSpace(member))
		if err != nil {
			_ = from.Close() // nothing has been sent on it
			continue
		}
		go pass(from, to)
		go answer(to, from)
	}
}

// pass copies what arrives, and ends both when one has ended: closing what has broken may fail. Owner: the process, with
// which it ends.
func pass(from, to net.Conn) {
	_, _ = io.Copy(to, from) // an error is an end, too
	_ = to.Close()
	_ = from.Close()
}

// buildDate is the form in which servers since 3.7 give their build date.
var buildDate = regexp.MustCompile(`built on (\d{4})-(\d\d)-(\d\d)`)

// answer is pass for a server's answers. go-zookeeper's tests wait until they can parse the answer to srvr, and know
// only the date format of servers before 3.7: so all answers get that.
func answer(from, to net.Conn) {
	b := make([]byte, 4096)
	n, err := from.Read(b)
	if err == nil {
		_, err = to.Write(buildDate.ReplaceAll(b[:n], []byte("built on $2/$3/$1")))
	}
	if err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	pass(from, to)
}

// readConfig returns the name of the ensemble, the server's id in it and its client port.
func readConfig(file string) (key, id, port string, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", "", "", err
	}
	var servers []string
	dir := ""
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case name == "clientPort":
			port = value
		case name == "dataDir":
			dir = value
		case strings.HasPrefix(name, "server."):
			servers = append(servers, strings.ReplaceAll(value, " ", ""))
		}
	}
	if port == "" || dir == "" {
		return "", "", "", fmt.Errorf("%s names no clientPort or no dataDir", file)
	}
	if len(servers) == 0 {
		return dir, "1", port, nil
	}
	slices.Sort(servers)
	b, err = os.ReadFile(filepath.Join(dir, "myid"))
	return strings.Join(servers, ","), strings.TrimSpace(string(b)), port, err
}

// controller keeps the ensembles that stand-ins ask for.
type controller struct {
	like zktest.Version
	l    net.Listener
	wg   sync.WaitGroup // of connections

	mu        sync.Mutex // guards the fields below
	ensembles map[string]*ensemble
	conns     map[net.Conn]bool
}

// ensemble is one zktest server with its followers, by the ids of the configuration.
type ensemble struct {
	srv     *zktest.Server
	members map[string]*zktest.Member
}

func newController(like zktest.Version) (*controller, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &controller{like: like, l: l, ensembles: map[string]*ensemble{}, conns: map[net.Conn]bool{}}
	c.wg.Add(1)
	go c.accept()
	return c, nil
}

func (c *controller) addr() string { return c.l.Addr().String() }

// close ends everything, and joins it.
func (c *controller) close() error {
	err := c.l.Close()
	c.mu.Lock()
	for conn := range c.conns {
		_ = conn.Close() // its stand-in may have ended
	}
	c.mu.Unlock()
	c.wg.Wait()
	for _, e := range c.ensembles {
		err = errors.Join(err, e.srv.Close())
	}
	return err
}

func (c *controller) accept() {
	defer c.wg.Done()
	for {
		conn, err := c.l.Accept()
		if err != nil {
			return // close has closed it
		}
		c.mu.Lock()
		c.conns[conn] = true
		c.mu.Unlock()
		c.wg.Add(1)
		go c.serve(conn)
	}
}

// serve keeps a member up as long as its stand-in runs.
func (c *controller) serve(conn net.Conn) {
	defer c.wg.Done()
	defer func() {
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
		_ = conn.Close() // close may have done it
	}()
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	key, id, ok := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || !ok {
		return
	}
	m, err := c.member(key, id)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		return
	}
	m.Up()
	defer m.Down()
	if _, err := fmt.Fprintln(conn, m.Addr()); err != nil {
		return
	}
	_, _ = r.ReadByte() // it ends with the stand-in, which sends no more
}

// member returns one member of an ensemble, which begins with the first of them that is asked for.
func (c *controller) member(key, id string) (*zktest.Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.ensembles[key]
	if e == nil {
		srv, err := zktest.Start(zktest.WithVersion(c.like), zktest.WithSessionTimeouts(time.Second, time.Minute),
			zktest.WithSweepInterval(100*time.Millisecond)) // Curator's tests wait for the end of a container
		if err != nil {
			return nil, err
		}
		e = &ensemble{srv: srv, members: map[string]*zktest.Member{id: srv.Leader()}}
		c.ensembles[key] = e
	}
	m := e.members[id]
	if m == nil {
		var err error
		if m, err = e.srv.Follower(); err != nil {
			return nil, err
		}
		e.members[id] = m
	}
	return m, nil
}
