// Package driver is the only package that uses the connections of the library
// github.com/go-zookeeper/zk, which makes the next connection when one has failed.
//
// It knows package link, whose Conn stands between the library and the socket, and the handshake's
// bytes. Of the session it knows two functions: one dials, the other says whether the session is
// over.
//
// The library has a loop, a reader and a writer. Stop stops all three, in a goroutine that ends
// when they have ended.
package driver
