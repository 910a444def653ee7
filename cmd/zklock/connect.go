package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
var handedOn = []string{
	"zk", "auth-file", "connect-timeout", "session-timeout", "tick", "create-chroot",
	"tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name",
}

// variable is the name of the variable that replaces a flag.
func variable(flag string) string {
	return "ZKLOCK_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func (c *connFlags) register(f *pflag.FlagSet) {
	f.StringVar(&c.zk, "zk", "",
		"the ensemble, `host:port,...`; a /chroot may follow; default $"+envZK)
	f.StringArrayVar(&c.auth, "auth", nil,
		"credentials, `scheme:credential`, for example digest:user:password, or\n"+
			"sasl:user:password for SASL with DIGEST-MD5; shows in the\n"+
			"process list: better $"+envAuth+" or --auth-file")
	f.StringVar(&c.authFile, "auth-file", "",
		"`file` with one scheme:credential a line; a sasl line is read\n"+
			"again for each connection; default $"+envAuthFile)
	f.DurationVar(&c.patience, "connect-timeout", 15*time.Second,
		"how long to look for a server that answers")
	f.DurationVar(&c.timeout, "session-timeout", zksession.DefaultTimeout,
		"how soon the lock of a crashed holder is free; or $"+envTimeout)
	f.DurationVar(&c.tick, "tick", 0, "the ensemble's tickTime, if its minSessionTimeout is "+
		"not two ticks; default: found out; help safety")
	f.BoolVar(&c.createChroot, "create-chroot", false, "make the chroot of --zk when it is "+
		"missing; default: an error, since it may be misspelt")
	f.BoolVar(&c.tls, "tls", false,
		"encrypt the connections; also set by each of the flags below,\n"+
			"whose files are read again for each connection")
	f.StringVar(&c.tlsCA, "tls-ca", "",
		"`file` with the certificates to trust, PEM; default the system's")
	f.StringVar(&c.tlsCert, "tls-cert", "", "`file` with the certificate to show, PEM")
	f.StringVar(&c.tlsKey, "tls-key", "", "`file` with its key, PEM")
	f.StringVar(&c.tlsServer, "tls-server-name", "",
		"the `name` to expect in the servers' certificates; default each one's host")
}

// environment sets the flags that are not given from the environment, before they are checked, and
// notes the given ones for the command. The ensemble and the credentials are not set here: options
// reads them from the environment.
func (c *connFlags) environment(f *pflag.FlagSet) error {
	for _, name := range handedOn {
		flag, key := f.Lookup(name), variable(name)
		isGiven := f.Changed(name)
		if name == "zk" && c.zk == "" {
			isGiven = false // --zk "$UNSET"
		}
		if isGiven {
			c.handed = append(c.handed, key+"="+handedValue(flag))
			continue
		}
		text := os.Getenv(key)
		if text == "" || name == "zk" || name == "auth-file" {
			continue
		}
		if err := flag.Value.Set(text); err != nil {
			return usagef("%s=%s: as --%s: %w", key, text, name, err)
		}
	}
	return nil
}

// handedValue returns a flag's value for the command. The name of a file becomes absolute, since
// the command may change its directory.
func handedValue(flag *pflag.Flag) string {
	value := flag.Value.String()
	if value == "" || !slices.Contains(fileFlags, flag.Name) {
		return value
	}
	abs, err := filepath.Abs(value)
	if err != nil {
		return value
	}
	return abs
}

// guardEnvironment returns the environment of a guard process, which connects as we do: ours, with
// the flags that were given. It has the credentials, which the command does not get.
func (c *connFlags) guardEnvironment() []string {
	own := slices.Clone(c.handed)
	switch {
	case len(c.auth) > 0:
		own = append(own, envAuth+"="+strings.Join(c.auth, "\n"), envAuthFile+"=")
	case c.authFile != "":
		own = append(own, envAuth+"=") // is not used beside --auth-file
	}
	return append(without(os.Environ(), own), own...)
}

// options turns the flags into options for Dial. warn is called later, when a file of the TLS flags
// or that of --auth-file can't be used any more, with the reason.
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
	for _, auth := range creds.auth {
		opts = append(opts, zklock.WithAuth(auth.scheme, []byte(auth.secret)))
	}
	if creds.sasl != nil {
		login := &renewed[session.SASL]{read: c.saslLogin, last: creds.sasl, warn: warn}
		opts = append(opts, zklock.WithSASL(renewingSASL{creds.sasl, login}))
	}
	conf, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	if conf != nil {
		files := &renewed[*tls.Config]{read: c.tlsConfig, last: conf, warn: warn}
		next := func() (*tls.Config, error) { return files.next(), nil }
		opts = append(opts, zklock.WithTLSFunc(next))
	}
	return opts, nil
}

// credentials are those of --auth, --auth-file or the environment.
type credentials struct {
	auth []authentication
	sasl session.SASL // of the last line with sasl, nil without one
}

// authentication is a scheme and its credential.
type authentication struct{ scheme, secret string }

// credentials returns those of the flags or, if none of these is given, of the environment. Errors
// name the source of a credential, and never its secret.
func (c *connFlags) credentials() (all credentials, err error) {
	if err := all.add("--auth", c.auth); err != nil {
		return all, err
	}
	file := c.authFile
	if len(c.auth) == 0 && file == "" {
		file = os.Getenv(envAuthFile)
		if err := all.add(envAuth, lines(os.Getenv(envAuth))); err != nil {
			return all, err
		}
	}
	if file == "" {
		return all, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return all, usagef("--auth-file: %w", err)
	}
	return all, all.add("--auth-file "+file, lines(string(text)))
}

// add adds credentials, each scheme:secret, from that source.
func (c *credentials) add(source string, credentials []string) error {
	for _, text := range credentials {
		scheme, secret, ok := strings.Cut(text, ":")
		if !ok || scheme == "" || secret == "" {
			return usagef("%s: want scheme:credential, for example digest:user:password", source)
		}
		if scheme != "sasl" {
			c.auth = append(c.auth, authentication{scheme, secret})
			continue
		}
		user, password, ok := strings.Cut(secret, ":")
		if !ok || user == "" {
			return usagef("%s: want sasl:user:password", source)
		}
		c.sasl = session.DigestMD5(user, password)
	}
	return nil
}

// saslLogin reads the SASL login again.
func (c *connFlags) saslLogin() (session.SASL, error) {
	all, err := c.credentials()
	if err != nil {
		return nil, err
	}
	if all.sasl == nil {
		return nil, errors.New("the file of --auth-file has no line sasl:user:password any more")
	}
	return all.sasl, nil
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

// dial connects, within --connect-timeout and ctx.
func (a *app) dial(ctx context.Context, more ...zklock.Option) (*zklock.Client, error) {
	opts, err := a.conn.options(a.warnOfFiles)
	if err != nil {
		return nil, err
	}
	log := zklock.WithoutLog() // what a user of the command wants to know, it says itself
	if a.verbose {
		all := &slog.HandlerOptions{Level: slog.LevelDebug}
		log = zklock.WithLogger(slog.New(slog.NewTextHandler(a.err, all)))
	}
	opts = append(opts, log)
	bounded, cancel := context.WithTimeout(ctx, a.conn.patience)
	defer cancel()
	c, err := zklock.Dial(bounded, a.conn.zk, append(opts, more...)...)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return nil, &exitError{exitUnreachable,
			fmt.Errorf("gave up after %v: %w", a.conn.patience, bare{err})}
	}
	return c, err
}

// bare is an error without the program's name in front, for the middle of a sentence.
type bare struct{ error }

func (b bare) Error() string { return strings.TrimPrefix(b.error.Error(), "zklock: ") }
func (b bare) Unwrap() error { return b.error }
