package session

// requestQueue is a queue of requests. They are linked to each other, so that one that is given up is taken out of the middle,
// and a heartbeat put in front, without touching the others: the queue's owner holds a mutex for that long. A request is in
// one queue at a time.
type requestQueue struct {
	head, tail *request
	n          int // requests
	bytes      int // of their frames, and of the replies to lists and reads
}

func (q *requestQueue) push(r *request)      { q.link(q.tail, r, nil) }
func (q *requestQueue) pushFront(r *request) { q.link(nil, r, q.head) }

// insert puts r, which is not urgent, before the first that came after it, and behind all that are urgent.
func (q *requestQueue) insert(r *request) {
	next := q.head
	for next != nil && (next.urgent || next.seq < r.seq) {
		next = next.next
	}
	if next == nil {
		q.push(r)
	} else {
		q.link(next.prev, r, next)
	}
}

// link puts r between two neighbours; nil: there is none on that side.
func (q *requestQueue) link(prev, r, next *request) {
	if r.prev, r.next = prev, next; prev != nil {
		prev.next = r
	} else {
		q.head = r
	}
	if next != nil {
		next.prev = r
	} else {
		q.tail = r
	}
	q.n++
	q.bytes += len(r.frame) + r.expect
}

// pop takes the first; nil when there is none.
func (q *requestQueue) pop() *request {
	r := q.head
	if r != nil {
		q.remove(r)
	}
	return r
}

func (q *requestQueue) remove(r *request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		q.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		q.tail = r.prev
	}
	r.prev, r.next = nil, nil
	q.n--
	q.bytes -= len(r.frame) + r.expect
}
