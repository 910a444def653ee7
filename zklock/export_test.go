package zklock

// LocalQueues returns how many local queues a client has.
func LocalQueues(c *Client) int {
	return c.handoff.Len()
}
