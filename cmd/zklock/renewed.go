package main

import (
	"sync"

	"github.com/zklock/locker/session"
)

// renewed is a value that is read from files again for each connection, so that a command that runs
// for weeks uses certificates and passwords that were renewed meanwhile.
type renewed[T any] struct {
	read func() (T, error)
	warn func(error) // called when read has failed

	mu     sync.Mutex // guards what follows
	last   T          // that could be read
	warned string     // the last warning, until the files can be read again
}

// next returns the value that the files hold now. If it can't be read, since one file was replaced
// and another not yet, or the files are gone, next returns the last one, which the servers may
// still accept. It warns of that once, and not for each attempt to connect.
func (r *renewed[T]) next() T {
	value, err := r.read()
	if err == nil {
		r.keep(value)
		return value
	}
	last, isNew := r.failed(err.Error())
	if isNew {
		r.warn(err)
	}
	return last
}

func (r *renewed[T]) keep(value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = value
	r.warned = ""
}

// failed returns the last value that could be read, and whether why has not been told yet.
func (r *renewed[T]) failed(why string) (last T, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isNew = why != r.warned
	r.warned = why
	return r.last, isNew
}

// renewingSASL is the login that the embedded one was when the command began.
type renewingSASL struct {
	session.SASL
	login *renewed[session.SASL]
}

// Begin begins a negotiation with the user and the password that are in the files now.
func (m renewingSASL) Begin(server string) session.Negotiation {
	return m.login.next().Begin(server)
}

// Usable is the mechanism's own: see session.DigestMD5.
func (m renewingSASL) Usable() error {
	mechanism, ok := m.SASL.(interface{ Usable() error })
	if !ok {
		return nil
	}
	return mechanism.Usable()
}

// warnOfFiles says that a file of the TLS flags, or that of --auth-file, can't be used any more.
func (a *app) warnOfFiles(err error) {
	notice(a.err, "%v; what could last be read is used", err)
}
