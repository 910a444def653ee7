package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
)

// A reply that names another znode than the requested one is refused: that znode may belong to
// another client.
func TestTheReplyToACreateHasToNameWhatWasAskedFor(t *testing.T) {
	text := func(s string) []byte { return append(be32(nil, int32(len(s))), s...) }
	for path, fine := range map[string]bool{
		"/locks/a/x-0000000007":  true,
		"/locks/a/x--000000007":  true, // a counter that has wrapped
		"/locks/a/x-":            true,
		"/hocks/a/x-0000000007":  false,
		"/locks/a/y-0000000007":  false,
		"/locks/a/x-000000000x":  false,
		"/locks/a/x-0000000007/": false,
		"/locks/a":               false,
		"":                       false,
		"/locks/a/x-00000000007": false,
		"/locks/a/x-4000000001":  false, // of more than 32 bits
		"/locks/a/x-7":           false,
	} {
		t.Run(path, func(t *testing.T) {
			withPeer(t, func(c *peerConn) {
				if !c.hello() {
					return
				}
				c.welcome(8*time.Second, 77)
				for {
					xid, op, ok := c.request()
					if !ok {
						return
					}
					if op == 14 { // multi: one create, and the end
						c.reply(xid, 0,
							append(append([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0}, text(path)...),
								0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff))
						continue
					}
					c.reply(xid, 0, text(path))
				}
			}, func(t *testing.T, _ *peer, s *session.Session) {
				const asked = "/locks/a/x-"
				made, err := s.Create(within(t, soon), asked, nil, session.EphemeralSequential,
					session.WorldACL())
				check := func(got string, err error) {
					if fine {
						require.NoError(t, err)
						require.Equal(t, path, got)
						return
					}
					require.ErrorIs(t, err, session.ErrGarbled)
					require.ErrorIs(t, err, session.ErrUnknownOutcome)
				}
				check(made.Path, err)
				if path == "" {
					return // a create in a transaction whose path no caller reads
				}
				tx, err := s.Transact(context.Background(),
					session.OpCreate{Path: asked, ACL: session.WorldACL(),
						Mode: session.EphemeralSequential})
				got := ""
				if err == nil {
					got = tx.Responses[0].String
				}
				check(got, err)
			})
		})
	}
}
