// Package unsealed gives the packages of this module what package zklock keeps from all others.
package unsealed

import (
	"context"

	"github.com/zklock/locker/internal/session"
)

// SessionConfig returns what options, a []zklock.Option, say of the sessions. Package zklock sets
// it.
var SessionConfig func(options any) (session.Config, error)

// Session returns the whole session of client, a *zklock.Client, as Client.Session does a part of
// it. Package zklock sets it.
var Session func(ctx context.Context, client any) (*session.Session, error)

// TermFailed says that what the leader does has failed under hold, a *zklock.Hold of an election:
// its release is then no sign that somebody has led. Package zklock sets it.
var TermFailed func(hold any)

// OnSession returns a zklock.Option, with which a Client calls fn with the key of each of its
// sessions, before it uses the session. fn must not block. Package zklock sets it.
var OnSession func(fn func(session.Key)) (option any)
