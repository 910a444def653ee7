// Package playground plays stories of locks: clients of this library on the in-process server, a store that they write
// to, and a referee that checks the guarantees. The stories are the pictures of docs/when-things-fail.md. In the page that
// internal/playground/page makes, a user can also act without a story. Time is that of time.Now, which is simulated both in a
// test (testing/synctest) and in the page, which gives its Go program a simulated clock.
package playground

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zklock/locker/internal/timeline"
	"github.com/zklock/locker/zktest"
)

const (
	path    = "/locks/report"
	travels = 5 * time.Millisecond // a request
)

// Rules are the behaviour of the clients and the store. The zero value is this library with a store that compares
// tokens.
type Rules struct {
	NoToken      bool // the store accepts every write
	NoLeaseClock bool // a holder acts as one until the ensemble reports the loss, as with most libraries
}

// Stage is where a story is played. Its methods may be called concurrently.
type Stage struct {
	rules   Rules
	srv     *zktest.Server
	servers []*server
	clients []*client
	lanes   []string
	picture *timeline.Story // made when the clients are connected

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines that run until Close
	after  sync.WaitGroup // watchers of the ends of holds and znodes, and goroutines that a story has started

	mu        sync.Mutex // guards the fields below, and the fields that client and process name
	processes []*process // all that were started
	store     store
	judge     judge
	failed    error // of the started goroutines
	ended     bool  // the story
}

// server is one of the ensemble's three. Which one leads is only shown: writes are ordered by the in-process server itself, and
// a member that is cut off from that is cut off from the majority.
type server struct {
	*zktest.Member
	name  string
	leads bool // guarded by Stage.mu
	cut   bool // guarded by Stage.mu
}

// Open makes the stage for a script. The caller plays the script, or acts, and closes the stage.
func Open(script Script, rules Rules) (*Stage, error) {
	srv, err := zktest.Start(zktest.WithoutListener())
	if err != nil {
		return nil, err
	}
	s := &Stage{rules: rules, srv: srv}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.furnish(script); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// furnish starts the servers, makes the lock's directory and starts the clients. After an error Close closes what was started.
func (s *Stage) furnish(script Script) error {
	for i := range 3 {
		m, err := s.srv.Follower()
		if err != nil {
			return err
		}
		s.servers = append(s.servers, &server{Member: m, name: fmt.Sprint("server ", i+1), leads: i == 0})
	}
	for i := range path {
		if i > 0 && path[i] == '/' {
			if err := s.srv.Create(path[:i], nil); err != nil {
				return err
			}
		}
	}
	if err := s.srv.Create(path, nil); err != nil {
		return err
	}
	s.srv.Inject(zktest.Delay(travels))
	for i, name := range script.Clients {
		c := &client{s: s, name: string(name), home: s.servers[(script.First+i)%len(s.servers)], knows: s.servers}
		if script.OneServer {
			c.knows = []*server{c.home}
		}
		s.clients = append(s.clients, c)
		if err := s.start(c); err != nil {
			return err
		}
		if _, err := c.p.zk.Session(s.ctx); err != nil {
			return err
		}
	}
	time.Sleep(1300*time.Millisecond - time.Duration(time.Now().UnixNano())%time.Second) // no story begins on a tick of the server's
	s.lanes = script.lanes()
	s.picture = timeline.New(script.Name, script.Title, script.Step, s.lanes...)
	s.wg.Go(s.referee)
	return nil
}

// Play plays a script to its end.
func (s *Stage) Play(script Script) error {
	err := script.Play(s)
	s.after.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.picture.Close()
	s.ended = true
	return errors.Join(err, s.failed)
}

// Close ends all activity, and joins it. It first restores the links of clients that were cut off, because such a
// client would take long to close.
func (s *Stage) Close() error {
	s.cancel()
	for _, m := range s.servers {
		m.Heal()
	}
	for _, p := range s.processes {
		s.mu.Lock()
		p.thawLocked()
		s.mu.Unlock()
		_ = p.zk.Close() // its session may be over
	}
	s.after.Wait()
	s.wg.Wait()
	return s.srv.Close()
}

// begin runs a function of the story in a goroutine, and keeps its error if the stage has not been closed.
func (s *Stage) begin(f func() error) {
	s.after.Go(func() {
		if err := f(); err != nil && s.ctx.Err() == nil {
			s.mu.Lock()
			s.failed = errors.Join(s.failed, err)
			s.mu.Unlock()
		}
	})
}

// client returns the one of that name.
func (s *Stage) client(name string) (*client, error) {
	for _, c := range s.clients {
		if c.name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("playground: no client is called %q", name)
}

// server returns the one of that name.
func (s *Stage) server(name string) (*server, error) {
	for _, m := range s.servers {
		if m.name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("playground: no server is called %q", name)
}

// contends reports whether a client has a znode in the lock's directory.
func (s *Stage) contends(name string) bool {
	return slices.ContainsFunc(s.srv.Children(path), func(child string) bool {
		n, ok := s.srv.Node(path + "/" + child)
		return ok && owner(n) == name
	})
}

// owner is whose contender a znode is.
func owner(n zktest.Node) string {
	var data struct{ Owner string }
	if json.Unmarshal(n.Data, &data) != nil {
		return ""
	}
	return data.Owner
}
