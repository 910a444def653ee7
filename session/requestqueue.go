package session

// requestQueue is a queue of requests. They are linked to each other, so that one that is given up is taken out of the middle,
// and a heartbeat put in front, without touching the others: the queue's owner holds a mutex for that long. A request is in
// one queue at a time.
type requestQueue struct {
	head, tail *request
	n          int // requests
	bytes      int // of their frames, and of the replies to lists and reads
}

func (q *requestQueue) push(r *request) {
	if r.prev = q.tail; q.tail != nil {
		q.tail.next = r
	} else {
		q.head = r
	}
	q.tail = r
	q.n++
	q.bytes += len(r.frame) + r.expect
}

func (q *requestQueue) pushFront(r *request) {
	if r.next = q.head; q.head != nil {
		q.head.prev = r
	} else {
		q.tail = r
	}
	q.head = r
	q.n++
	q.bytes += len(r.frame) + r.expect
}

// insert puts r before the first that came after it.
func (q *requestQueue) insert(r *request) {
	next := q.head
	for next != nil && next.seq < r.seq {
		next = next.next
	}
	switch {
	case next == nil:
		q.push(r)
		return
	case next.prev == nil:
		q.pushFront(r)
		return
	}
	r.prev, r.next = next.prev, next
	next.prev.next, next.prev = r, r
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
