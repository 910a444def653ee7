package pipeline

// requestQueue is a linked list of requests. A request is in one queue at a time. Under the mutex
// of its owner, a request that is given up is removed from the middle in constant time, and a
// heartbeat is put in front.
type requestQueue struct {
	head, tail *Request
	n          int // requests
	bytes      int // of their frames
	long       int // those with a long reply
}

func (q *requestQueue) push(r *Request)      { q.link(q.tail, r, nil) }
func (q *requestQueue) pushFront(r *Request) { q.link(nil, r, q.head) }

// link puts r between prev and next. Either is nil if r comes to that end of the queue.
func (q *requestQueue) link(prev, r, next *Request) {
	r.prev, r.next = prev, next
	if prev != nil {
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
	q.bytes += len(r.Frame)
	if r.long {
		q.long++
	}
}

func (q *requestQueue) pop() *Request {
	r := q.head
	if r != nil {
		q.remove(r)
	}
	return r
}

func (q *requestQueue) remove(r *Request) {
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
	q.bytes -= len(r.Frame)
	if r.long {
		q.long--
	}
}
