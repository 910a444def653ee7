package session

import "sync"

// replySizes knows how long the replies are whose length others choose: to lists and to reads of data. Requests and other
// replies are short, but a client that may create znodes can make the list of a directory as long as it likes, a hundred
// thousand contenders, or names of 1 MB each; and a client that may write a directory's data can make them 1 MB. A burst of
// calls on such a lock would ask for that as often at once, and the reply to the next heartbeat would come behind all those
// bytes. So such a read counts in a conn's window with the length of the znode's last reply. Until a znode's first reply has
// arrived, its first read counts as 0 bytes and each further one as half the window, so that only a few are in flight.
type replySizes struct {
	mu    sync.Mutex // guards what follows; a leaf, inside conn.mu
	known map[replyKey]int
}

type replyKey struct {
	op   int32
	path string
}

const (
	repliesKept  = 4096            // znodes that are remembered
	unknownReply = windowBytes / 2 // what a further read counts until the first has been answered
)

// keyOf returns the key of r; false when its reply is short.
func (rs *replySizes) keyOf(r *request) (replyKey, bool) {
	return replyKey{r.op, r.path}, r.op == opGetChildren2 || r.op == opGetData
}

// expect returns what r counts for its reply, now that it is about to be sent.
func (rs *replySizes) expect(r *request) int {
	key, ok := rs.keyOf(r)
	if !ok {
		return 0
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if size, asked := rs.known[key]; asked {
		return size
	}
	if rs.known == nil || len(rs.known) >= repliesKept {
		rs.known = map[replyKey]int{}
	}
	rs.known[key] = unknownReply
	return 0
}

// answered notes the length of the reply to r.
func (rs *replySizes) answered(r *request, size int) {
	key, ok := rs.keyOf(r)
	if !ok {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, asked := rs.known[key]; asked {
		rs.known[key] = size
	}
}
