// Package link is one network connection of a session: it moves bytes between a socket and a
// pipeline, notices when the connection fails, and presents the credentials.
//
// It knows neither the session's life nor its lease nor its watches: a Conn reports to its Owner,
// and the Owner decides. In particular it may not import package lease. Which request is written
// next, and which reply belongs to which request, is decided by package pipeline.
//
// Two goroutines work on a Conn. The driver's calls Receive in a loop, so it reads, and completes
// requests. The session's, started by Owner.Spawn after the handshake, presents the credentials,
// writes, and calls Owner.Beat. While no reply is due, a call writes its requests itself (Flush).
// When a Conn fails, a third goroutine closes the socket. The session joins the last two by
// Common.Joined, and the first with the driver.
package link
