package session

import "sync"

// listSizes knows how long the lists of directories are. Requests and replies are mostly short, but whoever may create
// znodes makes the list of a directory as long as he likes: a hundred thousand contenders, or names of 1 MB each. A burst
// of calls on such a lock would ask for it as often at once, and the reply to the next heartbeat would come behind all
// those bytes. So a list counts in a link's window with the length that the directory's last one had. As long as no list of
// a directory has been answered, the first counts little and each further one much, so that few are under way.
type listSizes struct {
	mu    sync.Mutex // guards what follows; inside link.mu
	known map[string]int
}

const (
	listsKept   = 4096            // directories that are remembered
	unknownList = windowBytes / 2 // what a further list counts until the first has been answered
)

// expect returns what c counts for its reply, now that it is about to be sent.
func (ls *listSizes) expect(c *call) int {
	if c.op != opGetChildren2 {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if size, asked := ls.known[c.path]; asked {
		return size
	}
	if ls.known == nil || len(ls.known) >= listsKept {
		ls.known = map[string]int{}
	}
	ls.known[c.path] = unknownList
	return 0
}

// answered notes the length of the reply to c.
func (ls *listSizes) answered(c *call, size int) {
	if c.op != opGetChildren2 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, asked := ls.known[c.path]; asked {
		ls.known[c.path] = size
	}
}
