// Package wire is ZooKeeper's protocol: how requests are encoded and how replies are decoded.
//
// It consists of pure functions. It knows no connection, no clock and no error of a session: a
// server's code stays a number here, and package failure turns it into an error. No length that
// comes from the wire is trusted before the bytes behind it have been seen.
//
// It starts no goroutines, and its values are not safe for concurrent use.
package wire
