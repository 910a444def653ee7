package hardened_test

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
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// authority signs certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem = a.issue(t, "authority")
	return a
}

// issue returns a certificate for name with its key; the authority's own, when it has none yet.
func (a *authority) issue(
	t *testing.T, name string,
) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0,
			1)}, DNSNames: []string{"localhost"}, BasicConstraintsValid: true}
	parent, signer := a.cert, a.key
	if parent == nil {
		c.IsCA, c.KeyUsage, parent, signer = true, x509.KeyUsageCertSign, c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	require.NoError(t, err)
	c, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return c, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair is issue for package tls.
func (a *authority) pair(t *testing.T, name string) tls.Certificate {
	t.Helper()
	cert, key, _ := a.issue(t, name)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// Servers that require client certificates, and use them as identities in access lists.
func TestLocksWorkByClientCertificates(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	_, key, cert := a.issue(t, "server")
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	own, trusted := filepath.Join(dir, "server.pem"), filepath.Join(dir, "authority.pem")
	require.NoError(t,
		os.WriteFile(own,
			append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
				cert...), 0o600))
	require.NoError(t, os.WriteFile(trusted, a.pem, 0o600))
	port := ensemble.Port(t)
	secure := "127.0.0.1:" + port
	ensemble.Start(t, 1,
		ensemble.WithConfig("serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"secureClientPort="+port, "secureClientPortAddress=127.0.0.1",
			"ssl.keyStore.location="+own, "ssl.keyStore.type=PEM",
			"ssl.trustStore.location="+trusted,
			"ssl.trustStore.type=PEM",
			"ssl.clientAuth=need", "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider"))

	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	as := func(certs ...tls.Certificate) zklock.Option {
		return zklock.WithTLS(&tls.Config{RootCAs: pool, Certificates: certs,
			MinVersion: tls.VersionTLS12})
	}
	ann := as(a.pair(t, "ann"))
	life(t, secure, "/locks/a", ann)

	acl := zklock.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "x509", ID: "CN=ann"})
	_, hold, err := dial(t, secure, ann).Mutex("/locks/anns", acl).Lock(locktest.Within(t, soon))
	require.NoError(t, err)
	require.NoError(t, hold.Unlock())
	_, _, err = dial(t, secure,
		as(a.pair(t, "bob"))).Mutex("/locks/anns").Lock(locktest.Within(t, soon))
	require.ErrorIs(t, err, zk.ErrNoAuth)

	for who, opt := range map[string]zklock.Option{"a client without a certificate": as(),
		"a stranger": as(newAuthority(t).pair(t, "ann"))} {
		_, err = zklock.Dial(locktest.Within(t, 3*time.Second), secure, opt)
		require.Error(t, err, who)
		t.Log(who, "gets:", err)
	}
}
