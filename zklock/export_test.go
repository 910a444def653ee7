package zklock

// Lines returns how many local lines a client has.
func Lines(c *Client) int {
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	return len(c.lines.all)
}
