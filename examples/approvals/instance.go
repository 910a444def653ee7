package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/zklock/locker/zklock"
)

// instanceEnv, when it is set, makes the program one instance of the service; its value is the orders.
const instanceEnv = "APPROVALS_INSTANCE"

// orders are the parent process's settings for an instance, in JSON.
type orders struct {
	Name     string
	Connect  string        // the ensemble
	Root     string        // of the locks
	Timeout  time.Duration // of the session
	Database string
	Tables   string
	Pause    time.Duration
	Lock     bool
}

// word is a line of JSON that an instance prints for its parent.
type word struct {
	Up     string      `json:",omitempty"` // it serves, at this address
	Closed bool        `json:",omitempty"` // no update is made from here on, until the gate is opened
	Ready  []lateWrite `json:",omitempty"` // it may be stopped now; these are the writes that it is about to make
	Stale  *staleWrite `json:",omitempty"` // the database refused this one
	Lost   int64       `json:",omitempty"` // as the last word: updates that ended with the lock, before their write
	Err    string      `json:",omitempty"` // why it ends
}

// The parent's commands on an instance's standard input. Its end ends the instance.
const (
	closeGate = "close"
	openGate  = "open"
)

// stopping bounds the orderly end of an instance.
const stopping = 5 * time.Second

// instanceMain is main for an instance. It returns the exit code.
func instanceMain(text string, stdin io.Reader, stdout io.Writer) int {
	var mu sync.Mutex // guards stdout
	say := func(w word) {
		mu.Lock()
		defer mu.Unlock()
		// If the parent does not read any more, standard input ends, too.
		_ = json.NewEncoder(stdout).Encode(w)
	}
	if err := instance(text, stdin, say); err != nil {
		say(word{Err: err.Error()})
		return 1
	}
	return 0
}

// instance serves until its standard input ends.
func instance(text string, stdin io.Reader, say func(word)) (err error) {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	st, err := openStore(o.Database, o.Tables)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	s := &service{name: o.Name, store: st, gate: newGate(), pause: o.Pause, stale: func(w staleWrite) { say(word{Stale: &w}) }}
	var client *zklock.Client
	if o.Lock {
		if client, err = dial(o); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, client.Close()) }()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(client, o.Root), ReadHeaderTimeout: stopping}
	var serving sync.WaitGroup
	var serveErr error
	serving.Go(func() { // until Shutdown or Close below
		if e := server.Serve(listener); !errors.Is(e, http.ErrServerClosed) {
			serveErr = e
		}
	})
	say(word{Up: listener.Addr().String()})

	obey(stdin, s.gate, say)
	ctx, cancel := context.WithTimeout(context.Background(), stopping)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		err = server.Close() // requests that still wait for a lock see their connection close
	}
	serving.Wait()
	say(word{Lost: s.lost.Load()})
	return errors.Join(err, serveErr)
}

func dial(o orders) (*zklock.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return zklock.Dial(ctx, o.Connect, zklock.WithSessionTimeout(o.Timeout))
}

// obey carries out the commands on standard input until it ends. The gate is open then.
func obey(stdin io.Reader, g *gate, say func(word)) {
	var closing sync.WaitGroup
	for lines := bufio.NewScanner(stdin); lines.Scan(); {
		switch lines.Text() {
		case closeGate:
			g.close()
			say(word{Closed: true})
			closing.Go(func() { say(word{Ready: g.standing()}) }) // ends when the gate is opened, at the latest
		case openGate:
			g.open()
		default:
			say(word{Err: fmt.Sprintf("unknown order %q", lines.Text())})
		}
	}
	g.open()
	closing.Wait()
}
