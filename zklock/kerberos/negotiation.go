package kerberos

import (
	"context"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"
)

// A negotiation is three messages each way (RFC 4752, in tokens of RFC 4121):
//
//	client                                        server
//	AP-REQ: ticket, and the time under its key →
//	                                           ← AP-REP: that time, under the same key; maybe another key
//	nothing                                    →
//	                                           ← which protections it offers, signed
//	none of them, signed                       →
//
// The AP-REP is what proves the server: only a server that has the principal's key can read the
// ticket, and so the time.

// negotiation is one run of the mechanism, on one connection.
type negotiation struct {
	ticket func(context.Context) (credential, error)
	state  state
	asked  types.Authenticator // what was sent with the ticket

	key   types.EncryptionKey // of the messages from now on
	flags byte                // of our signed messages
}

// state is how far a negotiation has come.
type state uint8

const (
	begun  state = iota // nothing is sent
	asking              // the AP-REQ is sent
	proven              // the server has proven itself
)

// flagAcceptorSubkey marks a message that is signed with the key that the server chose.
const flagAcceptorSubkey, flagSealed = 1 << 2, 1 << 1

func (n *negotiation) Step(
	ctx context.Context, challenge []byte,
) (token []byte, done bool, err error) {
	err = decoding(func() (err error) {
		switch n.state {
		case begun:
			token, err = n.request(ctx)
			n.state = asking
		case asking:
			token, err = []byte{}, n.prove(challenge)
			n.state = proven
		default:
			token, err = n.choose(challenge)
			done = true
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return token, done, nil
}

// request is the client's first message.
func (n *negotiation) request(ctx context.Context) ([]byte, error) {
	c, err := n.ticket(ctx)
	if err != nil {
		return nil, err
	}
	n.key = c.key
	if n.asked, err = types.NewAuthenticator(c.realm, c.name); err != nil {
		return nil, err
	}
	n.asked.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI,
		Checksum: contextChecksum(gssapi.ContextFlagMutual | gssapi.ContextFlagInteg)}
	req, err := messages.NewAPReq(c.ticket, c.key, n.asked)
	if err != nil {
		return nil, err
	}
	types.SetFlag(&req.APOptions, flags.APOptionMutualRequired)
	b, err := req.Marshal()
	if err != nil {
		return nil, err
	}
	oid, err := asn1.Marshal(asn1.ObjectIdentifier(gssapi.OIDKRB5.OID()))
	if err != nil {
		return nil, err
	}
	return asn1tools.AddASNAppTag(append(append(oid, 1, 0), b...), 0), nil
}

// contextChecksum asks for properties of the context: RFC 4121, section 4.1.1, without channel
// bindings.
func contextChecksum(flags uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 16)
	return binary.LittleEndian.AppendUint32(append(b, make([]byte, 16)...), flags)
}

// prove checks the server's proof.
func (n *negotiation) prove(challenge []byte) error {
	var t spnego.KRB5Token
	if err := t.Unmarshal(challenge); err != nil {
		return fmt.Errorf("the server's answer to the ticket: %w", err)
	}
	if t.IsKRBError() {
		return fmt.Errorf("the server refuses the ticket: %w", t.KRBError)
	}
	if !t.IsAPRep() {
		return errors.New("the server's answer to the ticket proves nothing")
	}
	b, err := crypto.DecryptEncPart(t.APRep.EncPart, n.key, keyusage.AP_REP_ENCPART)
	if err != nil {
		return fmt.Errorf("the server does not know the key of its principal: %w", err)
	}
	var said messages.EncAPRepPart
	if err := said.Unmarshal(b); err != nil {
		return err
	}
	if !said.CTime.Equal(n.asked.CTime.Truncate(time.Second)) || said.Cusec != n.asked.Cusec {
		return errors.New("the server's proof is of another time")
	}
	if len(said.Subkey.KeyValue) > 0 {
		n.key, n.flags = said.Subkey, flagAcceptorSubkey
	}
	return nil
}

// protectNothing is the choice among the protections that RFC 4752 has: those that it leaves out
// are for streams.
const protectNothing = 1

// choose answers which protections the server offers.
func (n *negotiation) choose(challenge []byte) ([]byte, error) {
	var offer gssapi.WrapToken
	if err := offer.Unmarshal(challenge, true); err != nil {
		return nil, fmt.Errorf("the server's offer of protections: %w", err)
	}
	if offer.Flags&flagSealed != 0 || len(offer.Payload) != 4 {
		return nil, errors.New("the server's offer of protections is not one of RFC 4752")
	}
	if _, err := offer.Verify(n.key, keyusage.GSSAPI_ACCEPTOR_SEAL); err != nil {
		return nil, fmt.Errorf("the server's offer of protections is not signed by it: %w", err)
	}
	if offer.Payload[0]&protectNothing == 0 {
		return nil,
			errors.New(
				"the server wants what follows signed or encrypted, which ZooKeeper has no form for")
	}
	kind, err := crypto.GetEtype(n.key.KeyType)
	if err != nil {
		return nil, err
	}
	choice := gssapi.WrapToken{Flags: n.flags, EC: uint16(kind.GetHMACBitLength() / 8),
		SndSeqNum: uint64(n.asked.SeqNumber),
		Payload:   []byte{protectNothing, 0, 0, 0}}
	if err := choice.SetCheckSum(n.key, keyusage.GSSAPI_INITIATOR_SEAL); err != nil {
		return nil, err
	}
	return choice.Marshal()
}
