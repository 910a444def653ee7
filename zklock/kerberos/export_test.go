package kerberos

import (
	"context"

	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/zklock/locker/internal/session"
)

// Negotiate begins a negotiation with a ticket at hand.
func Negotiate(
	ticket messages.Ticket, key types.EncryptionKey, realm string, name types.PrincipalName,
) session.Negotiation {
	return &negotiation{ticket: func(context.Context) (credential, error) {
		return credential{ticket: ticket, key: key, realm: realm, name: name}, nil
	}}
}
