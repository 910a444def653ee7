package interop_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// puppetEnv makes the test binary a process with contenders of the kind that it names, one of the
// two in Go. testdata/Contender.java describes its input and output.
const puppetEnv = "ZKLOCK_TEST_PUPPET"

// puppet is one contender of such a process: it makes one step.
type puppet interface {
	step(word, argument string) (answer string, err error)
}

// puppetMain returns the exit code.
func puppetMain(kind string, args []string, in io.Reader, out io.Writer) int {
	millis, err := strconv.Atoi(args[1])
	if err != nil {
		return 2
	}
	timeout := time.Duration(millis) * time.Millisecond
	var mu sync.Mutex // guards out
	say := func(id, answer string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, id, answer)
	}
	all := map[string]chan []string{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		words := append(strings.Fields(lines.Text()), "")
		id := words[0]
		if all[id] == nil {
			var p puppet = &goPuppet{connect: args[0], timeout: timeout, id: id}
			if kind == driver {
				p = &driverPuppet{connect: args[0], timeout: timeout, id: id}
			}
			steps := make(chan []string, 1) // a contender gets its next step after its answer
			all[id] = steps
			go func() { // ends with the process, which nothing outlives
				for words := range steps {
					answer, err := p.step(words[1], words[2])
					if err != nil {
						answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
					}
					say(id, answer)
				}
			}()
		}
		all[id] <- words
	}
	return 0
}

// goPuppet contends with this library.
type goPuppet struct {
	connect string
	timeout time.Duration
	id      string

	client *zklock.Client
	path   string
	hold   *zklock.Hold
}

func (p *goPuppet) step(word, argument string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	owner := zklock.WithOwner("zklock-" + p.id)
	var err error
	switch word {
	case "open":
		p.path = argument
		if p.client, err = zklock.Dial(ctx, p.connect,
			zklock.WithSessionTimeout(p.timeout)); err != nil {
			return "", err
		}
		s, err := p.client.Session(ctx)
		if err != nil {
			return "", err
		}
		return fmt.Sprint("open ", s.ID()), nil
	case "lock":
		_, p.hold, err = p.client.Mutex(p.path, owner).Lock(ctx)
	case "read":
		_, p.hold, err = p.client.RWMutex(p.path, owner).RLock(ctx)
	case "write":
		_, p.hold, err = p.client.RWMutex(p.path, owner).Lock(ctx)
	case "unlock", "unread", "unwrite":
		return "free", p.hold.Unlock()
	case "line":
		line, err := locktest.Queue(ctx, p.client, p.path)
		return fmt.Sprint("line ", len(line)), err
	case "close":
		return "closed", p.client.Close()
	default:
		return "", fmt.Errorf("unknown step %q", word)
	}
	return "held", err
}

// driverPuppet contends with the driver's own lock, which has no time limit.
type driverPuppet struct {
	connect string
	timeout time.Duration
	id      string

	conn *zk.Conn
	lock *zk.Lock
	path string
}

func (p *driverPuppet) step(word, argument string) (string, error) {
	switch word {
	case "open":
		conn, events, err := zk.Connect(strings.Split(p.connect, ","), p.timeout,
			zk.WithLogInfo(false))
		if err != nil {
			return "", err
		}
		late := time.After(bound)
		for conn.State() != zk.StateHasSession {
			select {
			case <-events:
			case <-late:
				return "", errors.New("not connected")
			}
		}
		p.conn, p.path, p.lock = conn, argument, zk.NewLock(conn, argument, zk.WorldACL(zk.PermAll))
		return fmt.Sprint("open ", conn.SessionID()), nil
	case "lock":
		return "held", p.lock.LockWithData([]byte("zk.Lock-" + p.id))
	case "unlock":
		return "free", p.lock.Unlock()
	case "line":
		names, _, err := p.conn.Children(p.path)
		return fmt.Sprint("line ", len(names)), err
	case "close":
		p.conn.Close()
		return "closed", nil
	}
	return "", fmt.Errorf("unknown step %q", word)
}
