// Package failure has the errors of a session and of its operations: why a session has ended, and
// what is known about an operation that has failed.
//
// It knows the codes of package wire, which it turns into errors, and nothing else of a session. It
// is the one package below internal/session that internal/queue and zklock may import, because
// they compare errors too.
//
// It starts no goroutines.
package failure
