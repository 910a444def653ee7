package session

// notifier calls one listener with each change, in order, in a goroutine of its own, so that nothing in the session waits for
// the listener, and it is not called under a mutex. A nil notifier has no listener.
type notifier struct {
	queue chan Change
	done  chan struct{}
}

// maxNotes bounds what waits for a listener that does not return: the oldest changes are dropped.
const maxNotes = 64

func newNotifier(tell func(Change)) *notifier {
	n := &notifier{make(chan Change, maxNotes), make(chan struct{})}
	go func() { // ends after close
		defer close(n.done)
		for c := range n.queue {
			tell(c)
		}
	}()
	return n
}

// addLocked is called with Session.mu held, and not once the session is over and that has been added.
func (n *notifier) addLocked(c Change) {
	if n == nil {
		return
	}
	for {
		select {
		case n.queue <- c:
			return
		default:
		}
		select {
		case <-n.queue:
		default: // the listener has just taken it
		}
	}
}

// close has the listener called with what is queued, and joins its goroutine.
func (n *notifier) close() {
	if n != nil {
		close(n.queue)
		<-n.done
	}
}
