// Package hostile is a test: it puts somebody between a client and its server who changes what the server says, frame
// by frame, at each moment of a lock's life, and checks that the client answers with an error and a new connection:
// never with a crash, a hang, a hold that was not granted, or a znode left behind.
//
// And it puts a neighbour beside locks of every kind: a client that may create znodes in their directories, with names,
// numbers, data and access lists of its choice, and nothing else.
//
// Lies that concern only package session are tested there. Here the lock is what counts.
package hostile
