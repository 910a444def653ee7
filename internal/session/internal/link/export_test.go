package link

// Write does what the writer does at once with what is queued, without the socket.
func (c *Conn) Write() {
	for more := true; more; {
		_, more, _ = c.nextPiece(nil)
	}
}

// FailInPart completes the first n requests without a reply, as a conn that fails for err does. It
// has not come to the others yet.
func (c *Conn) FailInPart(n int, err error) {
	c.mu.Lock()
	aborted := c.pipe.Abort()
	c.mu.Unlock()
	for range n {
		aborted.CompleteNext(c.Server, err)
	}
}
