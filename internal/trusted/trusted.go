// Package trusted keeps what package session does for the locks that live in a session out of the reach of programs: a
// method with a Caller among its parameters can be called by the packages of this module only, since nobody else can
// name one.
package trusted

// Caller says that a package of this module calls.
type Caller struct{ _ struct{} }
