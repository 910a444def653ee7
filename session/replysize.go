package session

import "sync"

// replySizes knows how long the replies are whose length others choose: to lists and to reads of data. Requests and other
// replies are short, but whoever may create znodes makes the list of a directory as long as he likes, a hundred thousand
// contenders, or names of 1 MB each; and whoever may write a directory's data makes them 1 MB. A burst of calls on such a
// lock would ask for that as often at once, and the reply to the next heartbeat would come behind all those bytes. So such
// a read counts in a link's window with the length that the znode's last one had. As long as none of a znode has been
// answered, the first counts little and each further one much, so that few are under way.
type replySizes struct {
	mu    sync.Mutex // guards what follows; inside link.mu
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

// keyOf returns the key of c; false when its reply is short.
func (rs *replySizes) keyOf(c *call) (replyKey, bool) {
	return replyKey{c.op, c.path}, c.op == opGetChildren2 || c.op == opGetData
}

// expect returns what c counts for its reply, now that it is about to be sent.
func (rs *replySizes) expect(c *call) int {
	key, ok := rs.keyOf(c)
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

// answered notes the length of the reply to c.
func (rs *replySizes) answered(c *call, size int) {
	key, ok := rs.keyOf(c)
	if !ok {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, asked := rs.known[key]; asked {
		rs.known[key] = size
	}
}
