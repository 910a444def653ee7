// Package probe is a short session on a connection of its own. It asks one server questions that
// would harm a client's session: for the servers' tick, or whether a long request is accepted.
//
// It knows the protocol and the errors, and nothing of the session that asks. The caller that opens
// a probe dials its connection, and sets the connection's deadline, which bounds every call.
//
// It starts no goroutines, and a Probe is for one goroutine.
package probe
