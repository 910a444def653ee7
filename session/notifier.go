package session

import "sync"

// notifier tells one listener of changes, in order, from a goroutine of its own, so that nothing in the session waits
// for a listener and none is called under a lock. A nil notifier has no listener.
type notifier struct {
	mu     sync.Mutex // guards what follows
	queue  []Change
	closed bool

	wake chan struct{}
	done chan struct{}
}

// maxNotes bounds what waits for a listener that does not return: the oldest changes are dropped.
const maxNotes = 256

func newNotifier(tell func(Change)) *notifier {
	n := &notifier{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() { // ends after close
		defer close(n.done)
		for range n.wake {
			for {
				n.mu.Lock()
				if len(n.queue) == 0 {
					closed := n.closed
					n.mu.Unlock()
					if closed {
						return
					}
					break
				}
				c := n.queue[0]
				n.queue = n.queue[1:]
				n.mu.Unlock()
				tell(c)
			}
		}
	}()
	return n
}

func (n *notifier) add(c Change) {
	if n == nil {
		return
	}
	n.mu.Lock()
	if len(n.queue) >= maxNotes {
		n.queue = n.queue[1:]
	}
	n.queue = append(n.queue, c)
	n.mu.Unlock()
	n.poke()
}

func (n *notifier) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// close lets the listener hear what is queued and joins it.
func (n *notifier) close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.poke()
	<-n.done
}
