package session

// callQueue is a queue of calls. They are linked to each other, so that one that is given up is taken out of the middle,
// and a heartbeat put in front, without touching the others: the queue's owner holds a mutex for that long. A call is in
// one queue at a time.
type callQueue struct {
	head, tail *call
	n          int // calls
	bytes      int // of their frames, and of the replies to lists and reads and reads
}

func (q *callQueue) push(c *call) {
	if c.prev = q.tail; q.tail != nil {
		q.tail.next = c
	} else {
		q.head = c
	}
	q.tail = c
	q.n++
	q.bytes += len(c.frame) + c.expect
}

func (q *callQueue) pushFront(c *call) {
	if c.next = q.head; q.head != nil {
		q.head.prev = c
	} else {
		q.tail = c
	}
	q.head = c
	q.n++
	q.bytes += len(c.frame) + c.expect
}

// pop takes the first; nil when there is none.
func (q *callQueue) pop() *call {
	c := q.head
	if c != nil {
		q.remove(c)
	}
	return c
}

func (q *callQueue) remove(c *call) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		q.head = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		q.tail = c.prev
	}
	c.prev, c.next = nil, nil
	q.n--
	q.bytes -= len(c.frame) + c.expect
}
