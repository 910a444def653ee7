// Package lease computes until when a session certainly exists, and what has to be done to keep
// that certain. lease.go has the rule and its argument; a Keeper applies the rule to one session; a
// Deadline reports the session's end.
//
// It does no I/O, and knows neither connections nor requests: the session tells it when a request
// was sent and when its reply arrived.
//
// It starts no goroutines. A Keeper is guarded by the mutex of its session. A Deadline is safe for
// concurrent use; the timer of its own calls the function that ends the session.
package lease
