package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	zksession "github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// connFlags name the ensemble, and how to connect to it.
type connFlags struct {
	zk       string
	auth     []string
	authFile string
	patience time.Duration // for a connection
	timeout  time.Duration // of the session
	tick     time.Duration

	createChroot                      bool
	tls                               bool
	tlsCA, tlsCert, tlsKey, tlsServer string

	handed []string // variables for the command: see handedOn
}

// Variables that replace flags.
const (
	envZK       = "ZKLOCK_ZK"
	envAuth     = "ZKLOCK_AUTH"
	envAuthFile = "ZKLOCK_AUTH_FILE"
	envTimeout  = "ZKLOCK_SESSION_TIMEOUT"
	envRoot     = "ZKLOCK_ROOT"
)

// handedOn are the flags that a command gets in its environment, so that a zklock in it uses the
// same ensemble in the same way. Credentials are not among them, only the names of files with
// credentials or keys.
var handedOn = []string{"zk", "auth-file", "connect-timeout", "session-timeout", "tick", "create-chroot", "tls", "tls-ca", "tls-cert", "tls-key",
	"tls-server-name"}

// variable is the name of the variable that replaces a flag.
func variable(flag string) string {
	return "ZKLOCK_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func (c *connFlags) register(f *pflag.FlagSet) {
	f.StringVar(&c.zk, "zk", "", "the ensemble, `host:port,...`; a /chroot may follow; default $"+envZK)
	f.StringArrayVar(&c.auth, "auth", nil, "credentials, `scheme:credential`, for example digest:user:password, or\nsasl:user:password for SASL with DIGEST-MD5; shows in the\nprocess list: better $"+envAuth+" or --auth-file")
	f.StringVar(&c.authFile, "auth-file", "", "`file` with one scheme:credential a line; default $"+envAuthFile)
	f.DurationVar(&c.patience, "connect-timeout", 15*time.Second, "how long to look for a server that answers")
	f.DurationVar(&c.timeout, "session-timeout", zksession.DefaultTimeout, "how soon the lock of a crashed holder is free; or $"+envTimeout)
	f.DurationVar(&c.tick, "tick", 0, "the ensemble's tickTime, if its minSessionTimeout is not two ticks; default: found out; help safety")
	f.BoolVar(&c.createChroot, "create-chroot", false, "make the chroot of --zk when it is missing; default: an error, since it may be misspelt")
	f.BoolVar(&c.tls, "tls", false, "encrypt the connections; also set by each of the flags below,\nwhose files are read again for each connection")
	f.StringVar(&c.tlsCA, "tls-ca", "", "`file` with the certificates to trust, PEM; default the system's")
	f.StringVar(&c.tlsCert, "tls-cert", "", "`file` with the certificate to show, PEM")
	f.StringVar(&c.tlsKey, "tls-key", "", "`file` with its key, PEM")
	f.StringVar(&c.tlsServer, "tls-server-name", "", "the `name` to expect in the servers' certificates; default each one's host")
}

// environment takes the values of flags that are not given from the environment, before they are
// checked, and notes the given ones for the command. options reads the ensemble and the credentials
// from the environment.
func (c *connFlags) environment(f *pflag.FlagSet) error {
	for _, name := range handedOn {
		key, text := variable(name), os.Getenv(variable(name))
		switch {
		case f.Changed(name) && (name != "zk" || c.zk != ""): // "" is that of an unset variable, and counts as not given
			value := f.Lookup(name).Value.String()
			if slices.Contains(fileFlags, name) {
				if abs, err := filepath.Abs(value); err == nil && value != "" { // the command may change its directory
					value = abs
				}
			}
			c.handed = append(c.handed, key+"="+value)
		case text != "" && name != "zk" && name != "auth-file":
			if err := f.Lookup(name).Value.Set(text); err != nil {
				return usagef("%s=%s: as --%s: %w", key, text, name, err)
			}
		}
	}
	return nil
}

// options turns the flags into options for Dial. warn is called later, with why a file of the TLS
// flags can no more be used.
func (c *connFlags) options(warn func(error)) ([]zklock.Option, error) {
	if c.zk == "" {
		c.zk = os.Getenv(envZK)
	}
	if c.zk == "" {
		return nil, usagef("no ensemble: give --zk host:port,… or set %s", envZK)
	}
	if c.patience <= 0 {
		return nil, usagef("--connect-timeout %v: must be more than 0", c.patience)
	}
	opts := []zklock.Option{zklock.WithSessionTimeout(c.timeout)}
	if c.tick != 0 {
		opts = append(opts, zklock.WithTickTime(c.tick))
	}
	if c.createChroot {
		opts = append(opts, zklock.WithCreateChroot())
	}
	creds, err := c.credentials()
	if err != nil {
		return nil, err
	}
	for _, cred := range creds {
		scheme, secret, ok := strings.Cut(cred.text, ":")
		if !ok || scheme == "" || secret == "" {
			return nil, usagef("%s: want scheme:credential, for example digest:user:password", cred.from)
		}
		if scheme != "sasl" {
			opts = append(opts, zklock.WithAuth(scheme, []byte(secret)))
			continue
		}
		user, password, ok := strings.Cut(secret, ":")
		if !ok || user == "" {
			return nil, usagef("%s: want sasl:user:password", cred.from)
		}
		opts = append(opts, zklock.WithSASL(session.DigestMD5(user, password)))
	}
	conf, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	if conf != nil {
		renewing := &renewingTLS{read: c.tlsConfig, last: conf, warn: warn}
		opts = append(opts, zklock.WithTLSFunc(renewing.next))
	}
	return opts, nil
}

// credential is one credential and its source; errors name the source, and never the secret.
type credential struct{ text, from string }

// credentials come from the flags; without any, from the environment.
func (c *connFlags) credentials() (all []credential, err error) {
	file := c.authFile
	for _, text := range c.auth {
		all = append(all, credential{text, "--auth"})
	}
	if len(all) == 0 && file == "" {
		for _, text := range lines(os.Getenv(envAuth)) {
			all = append(all, credential{text, envAuth})
		}
		file = os.Getenv(envAuthFile)
	}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, usagef("--auth-file: %w", err)
		}
		for _, line := range lines(string(text)) {
			all = append(all, credential{line, "--auth-file " + file})
		}
	}
	return all, nil
}

// lines returns the lines that are neither empty nor comments.
func lines(text string) (all []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

func (c *connFlags) tlsConfig() (*tls.Config, error) {
	if !c.tls && c.tlsCA == "" && c.tlsCert == "" && c.tlsKey == "" && c.tlsServer == "" {
		return nil, nil
	}
	conf := &tls.Config{ServerName: c.tlsServer}
	if c.tlsCA != "" {
		text, err := os.ReadFile(c.tlsCA)
		if err != nil {
			return nil, usagef("--tls-ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, usagef("--tls-ca %s: has no certificate in PEM", c.tlsCA)
		}
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return nil, usagef("--tls-cert and --tls-key: one needs the other")
	}
	if c.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
		if err != nil {
			return nil, usagef("--tls-cert %s, --tls-key %s: %w", c.tlsCert, c.tlsKey, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// renewingTLS reads the files of the TLS flags again for each connection, so that a command that
// runs for weeks uses certificates that were renewed meanwhile.
type renewingTLS struct {
	read func() (*tls.Config, error)
	warn func(error) // called when read has failed

	mu     sync.Mutex  // guards what follows
	last   *tls.Config // that could be read
	warned string      // the last warning, until the files can be read again
}

// next returns the configuration that the files hold now. If it can't be read, since one file was
// replaced and another not yet, or the files are gone, next returns the last one, which the servers
// may still accept. It warns of that once, and not for each attempt to connect.
func (r *renewingTLS) next() (*tls.Config, error) {
	conf, err := r.read()
	if err == nil {
		r.keep(conf)
		return conf, nil
	}
	last, isNew := r.failed(err.Error())
	if isNew {
		r.warn(err)
	}
	return last, nil
}

func (r *renewingTLS) keep(conf *tls.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = conf
	r.warned = ""
}

// failed returns the last configuration that could be read, and whether why has not been told yet.
func (r *renewingTLS) failed(why string) (last *tls.Config, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isNew = why != r.warned
	r.warned = why
	return r.last, isNew
}

// warnOfTLS says that a file of the TLS flags can't be used any more.
func (a *app) warnOfTLS(err error) {
	notice(a.err, "%v; the last certificates that could be read are used", err)
}

// dial connects, within --connect-timeout and ctx.
func (a *app) dial(ctx context.Context, more ...zklock.Option) (*zklock.Client, error) {
	opts, err := a.conn.options(a.warnOfTLS)
	if err != nil {
		return nil, err
	}
	log := zklock.WithoutLog() // what a user of the command wants to know, it says itself
	if a.verbose {
		log = zklock.WithLogger(slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelDebug})))
	}
	opts = append(opts, log)
	bounded, cancel := context.WithTimeout(ctx, a.conn.patience)
	defer cancel()
	c, err := zklock.Dial(bounded, a.conn.zk, append(opts, more...)...)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return nil, &exitError{exitUnreachable, fmt.Errorf("gave up after %v: %w", a.conn.patience, bare{err})}
	}
	return c, err
}

// bare is an error without the program's name in front, for the middle of a sentence.
type bare struct{ error }

func (b bare) Error() string { return strings.TrimPrefix(b.error.Error(), "zklock: ") }
func (b bare) Unwrap() error { return b.error }
