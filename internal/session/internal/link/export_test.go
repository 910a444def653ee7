package link

// Write does what the writer does at once with what is queued, without the socket.
func (c *Conn) Write() {
	for more := true; more; {
		_, more, _ = c.nextPiece()
		c.wrote()
	}
}

// FailInPart is the part of Fail(err) that completes requests, as far as the first n that were
// sent. It completes no others, and none that was never sent. It does not inform the owner, close
// the socket, or end the conn: c takes more requests.
func (c *Conn) FailInPart(n int, err error) {
	c.mu.Lock()
	aborted := c.pipe.Abort()
	c.mu.Unlock()
	for range n {
		aborted.CompleteNext(c.Server, err)
	}
}
