// Package dial decides which server is dialled next, and when, and opens the connection.
//
// It knows nothing of a session but its context and what is left of its lease, for which it calls a
// function.
//
// A call of the user's dialer runs in a goroutine, since it takes no context. If the session ends
// first, nobody waits for that goroutine: it closes the connection that the dialer may still
// open, and ends with the dialer's call. The lookup of a name has a goroutine that ends with its
// context, and so has an attempt to connect beside others, for which Dialer.Wait waits. A Dialer
// is safe for concurrent use.
package dial
