package kerberos_test

import (
	"context"
	"crypto/rand"
	"encoding/asn1"
	"net"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/asnAppTag"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/msgtype"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock/kerberos"
)

// acceptor is a server's side of a negotiation, as far as it is needed to break it.
type acceptor struct {
	key    types.EncryptionKey // of the ticket
	subkey types.EncryptionKey // the one that it chooses, if any
	late   time.Duration       // how wrong the time in its proof is
	offer  []byte              // protections
	sealed bool                // the offer says that it is encrypted
}

func newAcceptor(t *testing.T) *acceptor {
	t.Helper()
	return &acceptor{key: newKey(t, etypeID.AES256_CTS_HMAC_SHA1_96, 32), offer: []byte{1, 0, 0, 0}}
}

func newKey(t *testing.T, kind int32, size int) types.EncryptionKey {
	t.Helper()
	k := types.EncryptionKey{KeyType: kind, KeyValue: make([]byte, size)}
	_, err := rand.Read(k.KeyValue)
	require.NoError(t, err)
	return k
}

// begin begins a negotiation with the acceptor, for which the client has a ticket.
func (a *acceptor) begin() session.Negotiation {
	name := func(s ...string) types.PrincipalName {
		return types.PrincipalName{NameType: nametype.KRB_NT_PRINCIPAL, NameString: s}
	}
	ticket := messages.Ticket{TktVNO: 5, Realm: realm, SName: name("zookeeper", "here"),
		EncPart: types.EncryptedData{EType: a.key.KeyType, KVNO: 1,
			Cipher: []byte("for the server's eyes")}}
	return kerberos.Negotiate(ticket, a.key, realm, name("ann"))
}

// negotiate begins a negotiation, up to the client's first message.
func (a *acceptor) negotiate(t *testing.T) (run session.Negotiation, request []byte) {
	t.Helper()
	run = a.begin()
	request, done, err := run.Step(context.Background(), nil)
	require.NoError(t, err)
	require.False(t, done)
	return run, request
}

// proof answers the client's first message.
func (a *acceptor) proof(t *testing.T, request []byte) []byte {
	t.Helper()
	var asked spnego.KRB5Token
	require.NoError(t, asked.Unmarshal(request))
	require.NoError(t, asked.APReq.DecryptAuthenticator(a.key))
	who := asked.APReq.Authenticator
	require.Equal(t, "ann", who.CName.PrincipalNameString())
	require.True(t, types.IsFlagSet(&asked.APReq.APOptions, 2), "the server has to prove itself")
	said := messages.EncAPRepPart{CTime: who.CTime.Add(a.late), Cusec: who.Cusec, Subkey: a.subkey,
		SequenceNumber: 7}
	b, err := asn1.Marshal(said)
	require.NoError(t, err)
	if len(a.subkey.KeyValue) == 0 { // asn1 can't leave out a struct
		b, err = asn1.Marshal(struct {
			CTime          time.Time `asn1:"generalized,explicit,tag:0"`
			Cusec          int       `asn1:"explicit,tag:1"`
			SequenceNumber int64     `asn1:"optional,explicit,tag:3"`
		}{said.CTime, said.Cusec, 7})
		require.NoError(t, err)
	}
	enc, err := crypto.GetEncryptedData(asn1tools.AddASNAppTag(b, asnAppTag.EncAPRepPart), a.key,
		keyusage.AP_REP_ENCPART, 0)
	require.NoError(t, err)
	b, err = asn1.Marshal(messages.APRep{PVNO: 5, MsgType: msgtype.KRB_AP_REP, EncPart: enc})
	require.NoError(t, err)
	oid, err := asn1.Marshal(asn1.ObjectIdentifier(gssapi.OIDKRB5.OID()))
	require.NoError(t, err)
	return asn1tools.AddASNAppTag(append(append(oid, 2, 0),
		asn1tools.AddASNAppTag(b, asnAppTag.APREP)...), 0)
}

// offers is the acceptor's second message.
func (a *acceptor) offers(t *testing.T) []byte {
	t.Helper()
	key, w := a.key, gssapi.WrapToken{Flags: 1, SndSeqNum: 7, Payload: a.offer}
	if len(a.subkey.KeyValue) > 0 {
		key, w.Flags = a.subkey, 1|4
	}
	kind, err := crypto.GetEtype(key.KeyType)
	require.NoError(t, err)
	w.EC = uint16(kind.GetHMACBitLength() / 8)
	if a.sealed {
		w.Flags |= 2
	}
	require.NoError(t, w.SetCheckSum(key, keyusage.GSSAPI_ACCEPTOR_SEAL))
	b, err := w.Marshal()
	require.NoError(t, err)
	return b
}

func TestANegotiationProvesBothSidesAndChoosesNoProtection(t *testing.T) {
	plain, chooses := newAcceptor(t), newAcceptor(t)
	chooses.subkey = newKey(t, etypeID.AES128_CTS_HMAC_SHA256_128, 16)
	for name, a := range map[string]*acceptor{"by the ticket's key": plain,
		"by a key that the server chooses": chooses} {
		t.Run(name, func(t *testing.T) {
			run, request := a.negotiate(t)
			token, done, err := run.Step(context.Background(), a.proof(t, request))
			require.NoError(t, err)
			require.False(t, done)
			require.NotNil(t, token)
			require.Empty(t, token)
			token, done, err = run.Step(context.Background(), a.offers(t))
			require.NoError(t, err)
			require.True(t, done)
			var choice gssapi.WrapToken
			require.NoError(t, choice.Unmarshal(token, false))
			key := a.key
			if len(a.subkey.KeyValue) > 0 {
				key = a.subkey
				require.EqualValues(t, 4, choice.Flags)
			}
			ok, err := choice.Verify(key, keyusage.GSSAPI_INITIATOR_SEAL)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, []byte{1, 0, 0, 0}, choice.Payload)
		})
	}
}

func TestAServerThatDoesNotProveItsIdentityIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *acceptor)
		says   string
	}{
		"another time": {func(a *acceptor) { a.late = time.Second }, "of another time"},
		"protection": {func(a *acceptor) { a.offer = []byte{6, 0, 4, 0} },
			"wants what follows signed or encrypted"},
		"an encrypted offer": {func(a *acceptor) { a.sealed = true }, "not one of RFC 4752"},
		"a short offer":      {func(a *acceptor) { a.offer = []byte{1} }, "not one of RFC 4752"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAcceptor(t)
			c.change(a)
			require.ErrorContains(t, a.finish(t), c.says)
		})
	}
	t.Run("another key", func(t *testing.T) {
		a, other := newAcceptor(t), newAcceptor(t)
		run, request := a.negotiate(t)
		proof := a.proof(t, request)
		stranger, asked := other.negotiate(t)
		_, _, err := run.Step(context.Background(), other.proof(t, asked))
		require.ErrorContains(t, err, "does not know the key")
		_, _, err = stranger.Step(context.Background(), proof)
		require.ErrorContains(t, err, "does not know the key")
	})
	t.Run("an offer of another server", func(t *testing.T) {
		a, other := newAcceptor(t), newAcceptor(t)
		run, request := a.negotiate(t)
		_, _, err := run.Step(context.Background(), a.proof(t, request))
		require.NoError(t, err)
		_, _, err = run.Step(context.Background(), other.offers(t))
		require.ErrorContains(t, err, "not signed by it")
	})
}

// finish goes through the rest of a negotiation, up to the first error.
func (a *acceptor) finish(t *testing.T) error {
	t.Helper()
	run, request := a.negotiate(t)
	if _, _, err := run.Step(context.Background(), a.proof(t, request)); err != nil {
		return err
	}
	_, _, err := run.Step(context.Background(), a.offers(t))
	return err
}

// What a server sends is cut off anywhere, and changed anywhere: each is an error, and no panic.
func TestMessagesThatAreCutOffOrChangedAreErrors(t *testing.T) {
	a := newAcceptor(t)
	_, request := a.negotiate(t)
	proof, offers := a.proof(t, request), a.offers(t)
	refused := func(message []byte, proven bool) {
		t.Helper()
		run, request := a.negotiate(t)
		if proven {
			_, _, err := run.Step(context.Background(), a.proof(t, request))
			require.NoError(t, err)
		}
		_, done, err := run.Step(context.Background(), message)
		require.Error(t, err, "%x", message)
		require.False(t, done)
	}
	for i := range proof {
		refused(proof[:i], false)
	}
	for i := range offers {
		refused(offers[:i], true)
		changed := append([]byte{}, offers...)
		changed[i] ^= 0x10
		if i != 6 && i != 7 {
			// the rotation, which is not signed, and which ZooKeeper's servers don't use
			refused(changed, true)
		}
	}
	// A proof whose encrypted part is too short to hold even a checksum.
	short, err := asn1.Marshal(messages.APRep{PVNO: 5, MsgType: msgtype.KRB_AP_REP,
		EncPart: types.EncryptedData{EType: a.key.KeyType, Cipher: []byte{1}}})
	require.NoError(t, err)
	oid, err := asn1.Marshal(asn1.ObjectIdentifier(gssapi.OIDKRB5.OID()))
	require.NoError(t, err)
	refused(asn1tools.AddASNAppTag(append(append(oid, 2, 0),
		asn1tools.AddASNAppTag(short, asnAppTag.APREP)...), 0), false)
}

func TestAKDCThatDoesNotAnswerIsWaitedForUntilTheContextEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	require.NoError(t, err)
	conf, err := config.NewFromString("[libdefaults]\n default_realm = " + realm +
		"\n udp_preference_limit = 1\n[realms]\n " +
		realm + " = {\n  kdc = " + l.Addr().String() + "\n }\n")
	require.NoError(t, err)
	m := kerberos.GSSAPI(client.NewWithPassword("ann", realm, "secret", conf))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, _, err = m.Begin("zk1.example.org:2181").Step(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "no ticket for zookeeper/zk1.example.org")
	require.NoError(t, l.Close()) // ends the request
	m.Close()
	_, _, err = m.Begin("zk1.example.org:2181").Step(context.Background(), nil)
	require.ErrorIs(t, err, kerberos.ErrClosed)
	m.Close()
}
