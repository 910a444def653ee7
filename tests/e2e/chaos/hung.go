package chaos

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// hung says what is wrong with an ensemble that lets nobody in although all faults have ended, and
// "" when nothing is: a plain client of the driver's, without a line of this library, asks each
// server for a session. ZooKeeper 3.8.0 was seen to say of itself that it serves and to answer no
// handshake any more, to anybody; no lock can help that.
func (r *Run) hung() string {
	addrs := r.conf.Ensemble.Addrs
	in := make(chan bool, len(addrs))
	for _, addr := range addrs {
		// ends after restBound; the channel takes its answer in any case
		go func() { in <- letsIn(addr) }()
	}
	for range addrs {
		if <-in {
			return ""
		}
	}
	return fmt.Sprintf("no server lets a plain client in, %v after all faults had ended", restBound)
}

// letsIn reports whether a server gives the driver a session within restBound.
func letsIn(addr string) bool {
	conn, events, err := zk.Connect([]string{addr}, 4*time.Second, zk.WithLogger(mute{}))
	if err != nil {
		return false
	}
	defer conn.Close()
	late := time.After(restBound)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return true
			}
		case <-late:
			return false
		}
	}
}

// mute is the driver's logger here.
type mute struct{}

func (mute) Printf(string, ...any) {}
