package session_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
)

func TestEveryDialAsksTheDialerAnewAndServersTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		var mu sync.Mutex
		asked := map[string]int{}
		s := openAt(t, "a:1,b:2,c:3", func(c *session.Config) {
			c.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
				mu.Lock()
				asked[addr]++
				mu.Unlock()
				require.Equal(t, "tcp", network)
				require.Equal(t, session.Attempt(10*time.Second), timeout)
				return srv.Dial(network, addr, timeout)
			}
		})
		const drops = 60
		for range drops {
			srv.DropConnections()
			time.Sleep(2 * time.Second)
			require.Equal(t, session.Connected, s.State())
		}
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, drops+1, asked["a:1"]+asked["b:2"]+asked["c:3"],
			"one dial for each connection: the name is looked up each time")
		for server, n := range asked {
			require.Greater(t, n, drops/10, "%s is not left out", server)
		}
	})
}

func TestNamesAreLookedUpByTheSystemWithoutADialer(t *testing.T) {
	srv := zktest.Run(t)
	_, port, err := net.SplitHostPort(srv.Addr())
	require.NoError(t, err)
	s := openAt(t, "localhost:"+port)
	_, err = s.Exists(within(t, soon), "/")
	require.NoError(t, err)
	_, err = session.Open(within(t, time.Second), "no-such-host.invalid", session.Config{})
	require.ErrorContains(t, err, "no-such-host.invalid")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestABackOffEndsAsSoonAsAServerIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv, func(c *session.Config) { c.Timeout = 40 * time.Second })
		srv.Leader().Down()
		time.Sleep(20 * time.Second)
		srv.Leader().Up()
		start := time.Now()
		_, err := s.Exists(within(t, soon), "/")
		require.NoError(t, err)
		require.Less(t, time.Since(start), 1100*time.Millisecond, "the longest pause is a second")
	})
}

// certificate returns a certificate for 127.0.0.1, and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"zk.test"}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// tlsFront is a TLS proxy in front of a server.
func tlsFront(t *testing.T, srv *zktest.Server, cert tls.Certificate) (addr string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0",
		&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			outer, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer outer.Close()
				inner, err := srv.Dial("", "", 0)
				if err != nil {
					return
				}
				defer inner.Close()
				wg.Go(func() { pump(inner, outer) })
				pump(outer, inner)
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		wg.Wait()
	})
	return l.Addr().String()
}

// pump copies bytes until one end is closed, and then closes both.
func pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func TestASessionOverTLS(t *testing.T) {
	srv := zktest.Run(t)
	cert, pool := certificate(t)
	addr := tlsFront(t, srv, cert)
	conf := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	s := openAt(t, addr, func(c *session.Config) { c.TLS = conf })
	made, err := s.Create(within(t, soon), "/e", make([]byte, 100_000), session.Ephemeral,
		everybody)
	require.NoError(t, err)
	data, _, err := s.Get(within(t, soon), made.Path)
	require.NoError(t, err)
	require.Len(t, data, 100_000)
	require.Empty(t, conf.ServerName, "the caller's configuration is not touched")

	srv.DropConnections()
	_, err = s.Exists(within(t, soon), "/e")
	require.NoError(t, err, "on the next connection")
	start := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(start), 3*time.Second)
	require.Empty(t, srv.Sessions())
}

func TestTheTLSConfigurationIsAskedForAtEachConnection(t *testing.T) {
	t.Parallel()
	srv := zktest.Run(t)
	cert, pool := certificate(t)
	addr := tlsFront(t, srv, cert)
	hangs := make(chan struct{})
	defer close(hangs)
	var calls atomic.Int32
	s := openAt(t, addr, func(c *session.Config) {
		c.Timeout = 2 * time.Second
		c.TLSFunc = func() (*tls.Config, error) {
			switch calls.Add(1) {
			case 1:
				return nil, os.ErrNotExist
			case 2:
				return nil, nil
			case 3:
				<-hangs
			case 4:
				// trusts nobody
				return &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}, nil
			}
			return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
		}
	})
	require.EqualValues(t, 5, calls.Load())
	srv.DropConnections()
	_, err := s.Exists(within(t, soon), "/")
	require.NoError(t, err, "on the next connection")
	require.EqualValues(t, 6, calls.Load())
}

func TestATLSConfigurationThatDoesNotComeIsTheReason(t *testing.T) {
	t.Parallel()
	srv := zktest.Run(t)
	cert, _ := certificate(t)
	addr := tlsFront(t, srv, cert)
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	for says, fn := range map[string]func() (*tls.Config, error){
		"TLS: file does not exist": func() (*tls.Config,
			error) {
			return nil, os.ErrNotExist
		},
		"TLS: the function has returned no configuration, and no error": func() (*tls.Config,
			error) {
			return nil, nil
		},
		"TLS: the function that returns the configuration has not returned in time": func() (*tls.Config, error) {
			<-hangs
			return nil, nil
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			_, err := session.Open(within(t, 2*time.Second), addr,
				session.Config{Timeout: time.Second, TLSFunc: fn})
			require.ErrorIs(t, err, session.ErrUnreachable)
			require.ErrorContains(t, err, says)
		})
	}
}

func TestTLSOnTopOfADialerWithANameOfItsOwn(t *testing.T) {
	srv := zktest.Run(t)
	cert, pool := certificate(t)
	addr := tlsFront(t, srv, cert)
	s := openAt(t, "zk.test:2281", func(c *session.Config) {
		// the name is that of the connect string
		c.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		c.Dial = func(network, _ string, timeout time.Duration) (net.Conn, error) {
			return net.DialTimeout(network, addr, timeout)
		}
	})
	_, err := s.Exists(within(t, soon), "/")
	require.NoError(t, err)
}

func TestACertificateThatIsNotTrustedIsTheReason(t *testing.T) {
	srv := zktest.Run(t)
	cert, pool := certificate(t)
	addr := tlsFront(t, srv, cert)
	for name, conf := range map[string]*tls.Config{
		"unknown authority": {MinVersion: tls.VersionTLS12},
		"another name": {RootCAs: pool, ServerName: "other.test",
			MinVersion: tls.VersionTLS12},
	} {
		err := refusal(t, addr, conf, "TLS: ")
		require.ErrorContains(t, err, addr, name)
		require.ErrorContains(t, err, "x509", name)
	}
	plain := zktest.Run(t)
	err := refusal(t, plain.Addr(), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		"closed the connection during the TLS handshake: a port without TLS, or a client certificate missing?")
	require.NotContains(t, err.Error(), "EOF")
}

// refusal returns the error of an Open whose context ends after the server at addr has refused conf
// for a reason that contains words. Handshakes are slow on a busy machine, so each trial has more
// time than the one before.
func refusal(t *testing.T, addr string, conf *tls.Config, words string) error {
	t.Helper()
	for limit := time.Second; ; limit *= 2 {
		_, err := session.Open(within(t, limit), addr, session.Config{TLS: conf})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if limit > soon || strings.Contains(err.Error(), words) {
			require.ErrorContains(t, err, words)
			return err
		}
	}
}
