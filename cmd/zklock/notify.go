package main

import (
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// notifier sends systemd the service's state in the protocol of sd_notify(3): what it waits for, so that waiting in
// line does not count as a slow start, and that it is ready when the command runs. A nil notifier sends nothing.
type notifier struct {
	conn *net.UnixConn

	mu   sync.Mutex // guards the fields below
	last string     // the last state of the wait that was sent
	stop chan struct{}
	join sync.WaitGroup
}

// envNotify names the socket. The command does not get it when zklock notifies, because it would notify for zklock.
const envNotify = "NOTIFY_SOCKET"

// openNotifier returns the notifier of --notify.
func openNotifier(on bool) (*notifier, error) {
	if !on {
		return nil, nil
	}
	socket := os.Getenv(envNotify)
	if socket == "" {
		return nil, usagef("--notify: %s is not set: it is for a service of systemd with Type=notify", envNotify)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("--notify: %w", err)
	}
	return &notifier{conn: conn}, os.Unsetenv(envNotify)
}

const (
	noteEvery  = 5 * time.Second
	noteExtend = 30 * time.Second
)

// waiting sends the state of the wait until ready or close.
func (n *notifier) waiting(path string) {
	if n == nil {
		return
	}
	n.waited(fmt.Sprintf("waiting for %s", path))
	n.mu.Lock()
	defer n.mu.Unlock()
	stop := make(chan struct{})
	n.stop = stop
	n.join.Go(func() {
		tick := time.NewTicker(noteEvery)
		defer tick.Stop()
		for {
			n.say(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", noteExtend.Microseconds()))
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
}

// waited sends one state of the wait.
func (n *notifier) waited(status string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	same := n.last == status
	n.last = status
	n.mu.Unlock()
	if !same {
		n.say("STATUS=" + clean(status))
	}
}

func (n *notifier) endWait() {
	n.mu.Lock()
	if n.stop != nil {
		close(n.stop)
		n.stop = nil
	}
	n.mu.Unlock()
	n.join.Wait()
}

// ready sends that the command runs.
func (n *notifier) ready(status string) {
	if n == nil {
		return
	}
	n.endWait()
	n.say("READY=1\nSTATUS=" + clean(status))
}

// close sends that the service ends.
func (n *notifier) close() {
	if n == nil {
		return
	}
	n.endWait()
	n.say("STOPPING=1")
	_ = n.conn.Close() // a datagram socket: nothing is buffered in it
}

// say sends one message. If systemd does not read, or is gone, the command goes on.
func (n *notifier) say(message string) {
	_ = n.conn.SetWriteDeadline(time.Now().Add(time.Second)) // a socket has deadlines, and a closed one takes no message either
	_, _ = n.conn.Write([]byte(message))                     // see above
}
