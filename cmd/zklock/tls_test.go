//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

// certificate writes a certificate that signs itself, for both ends, and its key.
func certificate(t *testing.T, dir string) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "zk"},
		DNSNames:              []string{"zk.example"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth,
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	require.NoError(t, os.WriteFile(cert, certText, 0o600))
	require.NoError(t, os.WriteFile(key, keyText, 0o600))
	pair, err = tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	return pair, cert, key
}

// serverWithTLS starts a server that asks for certificates. cert and key are the files of its own,
// which it takes from clients, too.
func serverWithTLS(t *testing.T) (s *zktest.Server, cert, key string) {
	t.Helper()
	pair, cert, key := certificate(t, t.TempDir())
	pool := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(text))
	s = zktest.Run(t, zktest.WithTick(tick), longSessions, zktest.WithTLS(&tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}))
	return s, cert, key
}

func TestServersThatSpeakTLSOnly(t *testing.T) {
	t.Parallel()
	s, cert, key := serverWithTLS(t)
	right := []string{"--tls-ca", cert, "--tls-cert", cert, "--tls-key", key}
	with := func(more ...string) []string { return slices.Concat(right, more) }
	for name, c := range map[string]struct {
		flags []string
		code  int
	}{
		"as it must be":         {right, 0},
		"by another name":       {with("--tls-server-name", "zk.example"), 0},
		"by a wrong name":       {with("--tls-server-name", "other"), exitUnreachable},
		"without a certificate": {[]string{"--tls-ca", cert}, exitUnreachable},
		"no trusted authority": {
			[]string{"--tls", "--tls-cert", cert, "--tls-key", key}, exitUnreachable,
		},
		"without TLS":             {nil, exitUnreachable},
		"a key in place of a pem": {[]string{"--tls-ca", key}, exitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patience := "3s"
			if c.code == 0 {
				patience = locktest.Bound.String()
			}
			p := launch(t, s.Addr(), append([]string{"run", "--connect-timeout", patience},
				append(c.flags, "/l", "--", testCommand, "exit", "0")...)...)
			p.exits(c.code)
		})
	}
}

// The certificates are renewed on disk, first one file and then the other. Between the two, the
// server still has and trusts the old ones; afterwards, the new ones only.
func TestACommandUsesCertificatesThatWereRenewedWhileItRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair, cert, key := certificate(t, dir)
	var now atomic.Pointer[tls.Config] // of the server
	trust := func(pair tls.Certificate, cert string) (accepted *atomic.Int32) {
		accepted = new(atomic.Int32)
		text, err := os.ReadFile(cert)
		require.NoError(t, err)
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(text))
		now.Store(&tls.Config{
			Certificates:     []tls.Certificate{pair},
			ClientCAs:        pool,
			ClientAuth:       tls.RequireAndVerifyClientCert,
			VerifyConnection: func(tls.ConnectionState) error { accepted.Add(1); return nil },
		})
		return accepted
	}
	old := trust(pair, cert)
	s := zktest.Run(t, zktest.WithTick(tick), longSessions, zktest.WithTLS(&tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return now.Load(), nil
		}}))
	d := newDiary(t)
	p := launch(t, s.Addr(), append(lossFlags("--session-timeout", calm, "--tls-ca", cert,
		"--tls-cert", cert, "--tls-key", key),
		"/l", "--", testCommand, "diary", string(d), "until-term")...)
	d.alive(t, "child")
	// reconnect breaks the connection, and waits until the client uses the next one.
	reconnect := func(accepted *atomic.Int32, with string) {
		handshakes, requests := accepted.Load(), requestsOf(s)
		s.DropConnections()
		until(t, "connected with "+with,
			func() bool { return accepted.Load() > handshakes && requestsOf(s) > requests })
	}

	renewed, newCert, newKey := certificate(t, t.TempDir())
	require.NoError(t, os.Rename(newCert, cert))
	reconnect(old, "the old certificates, since the new one has no key yet")
	requireWarns(t, p, "what could last be read is used")

	require.NoError(t, os.Rename(newKey, key))
	reconnect(trust(renewed, cert), "the new ones")
	require.False(t, p.over())
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.exits(7)
}

// The login is renewed on disk: the lock's directory lets ann enter, and only bob leave.
func TestACommandUsesALoginThatWasRenewedWhileItRuns(t *testing.T) {
	t.Parallel()
	logins := filepath.Join(t.TempDir(), "auth")
	login := func(text string) { require.NoError(t, os.WriteFile(logins, []byte(text), 0o600)) }
	login("sasl:ann:a\n")
	s := zktest.Run(t, zktest.WithTick(tick), longSessions,
		zktest.WithSASLUsers(map[string]string{"ann": "a", "bob": "b"}))
	ses, err := session.Open(t.Context(), s.Addr(), session.Config{})
	require.NoError(t, err)
	_, err = ses.Create(t.Context(), "/l", nil, session.Persistent, []zk.ACL{
		{Perms: zk.PermCreate | zk.PermRead, Scheme: "sasl", ID: "ann"},
		{Perms: zk.PermDelete | zk.PermRead, Scheme: "sasl", ID: "bob"},
	})
	require.NoError(t, err)
	require.NoError(t, ses.Close()) // from here on the command's session is the only one
	d := newDiary(t)
	p := launch(t, s.Addr(), append(lossFlags("--session-timeout", calm, "--auth-file", logins),
		"/l", "--", testCommand, "diary", string(d), "until-term")...)
	d.alive(t, "child")

	login("")
	requireReconnects(t, s)
	requireWarns(t, p, "has no line sasl:user:password any more; what could last be read is used")
	login("sasl:bob:b\n")
	requireReconnects(t, s)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.exits(7)
	require.Empty(t, s.Children("/l"))
}

// requireWarns waits until p has written text to its standard error, which reaches the test through
// a pipe.
func requireWarns(t *testing.T, p *process, text string) {
	t.Helper()
	until(t, "warned: "+text, func() bool { return strings.Contains(p.err.String(), text) })
}

// requireReconnects breaks the connection of the only session, and waits until the session has used
// another one.
func requireReconnects(t *testing.T, s *zktest.Server) {
	t.Helper()
	requests := requestsOf(s)
	s.DropConnections()
	until(t, "reconnected", func() bool { return requestsOf(s) > requests+1 }) // the login is one
}

// requestsOf returns how many requests of the only session s has seen.
func requestsOf(s *zktest.Server) (n int) {
	for _, session := range s.Sessions() {
		for _, count := range session.Requests {
			n += count
		}
	}
	return n
}

// A client without a server may connect several times a second.
func TestAFileThatCannotBeReadIsWarnedOfOnce(t *testing.T) {
	first := &tls.Config{MinVersion: tls.VersionTLS12}
	second := &tls.Config{MinVersion: tls.VersionTLS13}
	var found *tls.Config
	var unreadable error
	var warned []error
	r := renewed[*tls.Config]{
		last: first,
		read: func() (*tls.Config, error) { return found, unreadable },
		warn: func(err error) { warned = append(warned, err) },
	}
	next := func(conf *tls.Config, err error) *tls.Config {
		found, unreadable = conf, err
		return r.next()
	}
	for range 3 {
		require.Same(t, first, next(nil, os.ErrNotExist))
	}
	require.Equal(t, []error{os.ErrNotExist}, warned)
	require.Same(t, first, next(nil, os.ErrPermission))
	require.Equal(t, []error{os.ErrNotExist, os.ErrPermission}, warned, "another reason")

	require.Same(t, second, next(second, nil))
	require.Same(t, second, next(nil, os.ErrPermission))
	require.Len(t, warned, 3, "again, after it could be read")
}
