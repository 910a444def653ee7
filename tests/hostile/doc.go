// Package hostile is a test: it puts a proxy between a client and its server that changes the
// server's messages, frame by frame, at each moment of a lock's life, and checks that the client
// responds with an error and a new connection: never with a crash, a hang, a hold that was not
// granted, or a znode left behind.
//
// Lies that concern only package session are tested there. The tests here check the lock.
package hostile
