// Package ephemeral counts the room that a session's ephemeral znodes need at the ensemble, so that
// a create for which there is no room is refused before it is sent. count.go says why.
//
// It knows a pipeline.Request, on which it notes what was reserved, and the errors. It does no I/O,
// and nothing is locked under its mutex.
//
// It starts no goroutines. A Count is safe for concurrent use.
package ephemeral
