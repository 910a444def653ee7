package kerberos_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zklock/kerberos"
)

func TestMain(m *testing.M) { os.Exit(ensemble.Run(m)) }

const (
	soon  = time.Minute // bounds what must not hang
	realm = "ZK.TEST"
)

// kdc is a key distribution center: MIT's, as Debian packages it, with a database of its own.
type kdc struct {
	dir  string
	conf *config.Config
	stop func()
}

// startKDC starts one that knows the principals. Their keys are in keytabs: see key.
func startKDC(t *testing.T, principals ...string) *kdc {
	t.Helper()
	for _, program := range []string{"krb5kdc", "kdb5_util", "kadmin.local"} {
		require.FileExists(t, "/usr/sbin/"+program, "make servers installs it")
	}
	k := &kdc{dir: t.TempDir()}
	k.configure(t, freePort(t))
	k.run(t, "kdb5_util", "create", "-r", realm, "-s", "-P", "master")
	for _, p := range principals {
		k.run(t, "kadmin.local", "-r", realm, "-q", "addprinc -randkey "+p)
		k.changeKey(t, p)
	}
	k.start(t)
	return k
}

// start starts the center on a free port, another one if somebody else was quicker.
func (k *kdc) start(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for {
		addr := k.configure(t, freePort(t))
		cmd := k.command("krb5kdc", "-n", "-r", realm)
		var says strings.Builder
		cmd.Stdout, cmd.Stderr = &says, &says
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() { // ends with the process, which stop kills
			_ = cmd.Wait()
			close(ended)
		}()
		k.stop = func() {
			_ = cmd.Process.Kill()
			<-ended
		}
		if serves(addr, ended) {
			t.Cleanup(k.stop)
			return
		}
		k.stop()
		require.True(t, time.Now().Before(deadline), "krb5kdc does not serve at %s: %s", addr,
			&says)
	}
}

// serves waits until somebody listens at addr, and returns false if the process ends before.
func serves(addr string, ended <-chan struct{}) bool {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); {
		select {
		case <-ended:
			return false
		case <-poll.C:
		}
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			_ = c.Close()
			return true
		}
	}
	return false
}

// configure writes the configuration of the center and of its clients.
func (k *kdc) configure(t *testing.T, addr string) string {
	t.Helper()
	conf := fmt.Sprintf(`[libdefaults]
 default_realm = %s
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 %s = {
  kdc = %s
 }
[domain_realm]
 127.0.0.1 = %s
`, realm, realm, addr, realm)
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "krb5.conf"), []byte(conf), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "kdc.conf"), fmt.Appendf(nil, `[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = %s
[realms]
 %s = {
  database_name = %s/principal
  key_stash_file = %s/stash
  acl_file = %s/acl
 }
`, addr, realm, k.dir, k.dir, k.dir), 0o600))
	var err error
	k.conf, err = config.NewFromString(conf)
	require.NoError(t, err)
	return addr
}

func (k *kdc) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command("/usr/sbin/"+program, args...)
	cmd.Env = append(os.Environ(), "KRB5_CONFIG="+k.dir+"/krb5.conf",
		"KRB5_KDC_PROFILE="+k.dir+"/kdc.conf")
	return cmd
}

func (k *kdc) run(t *testing.T, program string, args ...string) {
	t.Helper()
	out, err := k.command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s %q: %s", program, args, out)
}

func (k *kdc) keytabOf(principal string) string {
	return filepath.Join(k.dir, strings.ReplaceAll(principal, "/", "_")+".keytab")
}

// mechanism returns the principal's.
func (k *kdc) mechanism(
	t *testing.T, principal string, opts ...kerberos.Option,
) *kerberos.Mechanism {
	t.Helper()
	m := kerberos.GSSAPI(k.login(t, principal), opts...)
	t.Cleanup(m.Close)
	return m
}

// login returns one with the principal's keytab as it is now.
func (k *kdc) login(t *testing.T, principal string) *client.Client {
	t.Helper()
	kt, err := keytab.Load(k.keytabOf(principal))
	require.NoError(t, err)
	return client.NewWithKeytab(principal, realm, kt, k.conf)
}

// changeKey gives the principal another key, and writes it to the keytab.
func (k *kdc) changeKey(t *testing.T, principal string) {
	t.Helper()
	k.run(t, "kadmin.local", "-r", realm, "-q", "ktadd -k "+k.keytabOf(principal)+" "+principal)
}

// servers starts an ensemble of one server, which knows its own principal, and lets in nobody who
// has not authenticated by SASL.
func (k *kdc) servers(t *testing.T) *ensemble.Ensemble {
	t.Helper()
	file := filepath.Join(k.dir, "jaas.conf")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `Server {
 com.sun.security.auth.module.Krb5LoginModule required
 useKeyTab=true
 keyTab="%s"
 storeKey=true
 useTicketCache=false
 principal="%s@%s";
};
`, k.keytabOf(server), server, realm), 0o600))
	return ensemble.Start(t, 1, ensemble.WithJVM("-Djava.security.auth.login.config="+file,
		"-Djava.security.krb5.conf="+k.dir+"/krb5.conf",
		"-Dzookeeper.authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
		"-Dzookeeper.enforce.auth.enabled=true", "-Dzookeeper.enforce.auth.schemes=sasl"))
}

// server is the principal of the servers, which listen at 127.0.0.1.
const server = "zookeeper/127.0.0.1"

// freePort returns a loopback address that nobody listens at, below the range of outgoing
// connections' ports.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000))
		if l, err := net.Listen("tcp", addr); err == nil {
			require.NoError(t, l.Close())
			return addr
		}
	}
	require.Fail(t, "no free port")
	return ""
}
