// Package watch is the table of a session's watches: which Watch a notification fires, and what a
// new server has to be asked for.
//
// It knows package link, on whose Conn it puts its requests. Of the session it knows two functions:
// one runs a callback in a goroutine of the session, the other is told that a znode does not exist.
// How long a call waits for a watch is decided above.
//
// It starts no goroutines itself. Add and AddAll may write to the socket, which returns at once:
// see link.Conn.Flush. A Table is safe for concurrent use.
package watch
