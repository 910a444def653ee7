// Package unsealed gives the packages of this module what package zklock keeps from all others.
package unsealed

import "github.com/zklock/locker/session"

// SessionConfig returns what options, a []zklock.Option, say of the sessions. Package zklock sets it.
var SessionConfig func(options any) (session.Config, error)
