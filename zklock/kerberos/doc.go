// Package kerberos authenticates a client's connections with Kerberos: the SASL mechanism GSSAPI,
// as ZooKeeper's servers speak it whose JAAS configuration has Krb5LoginModule.
//
//	login := client.NewWithKeytab("app", "EXAMPLE.ORG", kt, conf)
//	c, err := zklock.Dial(ctx, "zk1.example.org:2181,zk2.example.org:2181", zklock.WithSASL(kerberos.GSSAPI(login)))
//
// where login is a client of github.com/jcmturner/gokrb5/v8. It is a module of its own, so that a
// program without Kerberos does not get that one.
//
// Each connection is authenticated before anything else is sent on it, and each server has to prove
// that it knows the key of its principal. What follows is neither encrypted nor signed, as with all
// of ZooKeeper's clients: use TLS where others can reach the network. Access lists name the user as
// {"sasl", "app@EXAMPLE.ORG"}, or as the servers' rules for principals
// (kerberos.removeRealmFromPrincipal, auth_to_local) say.
//
// A ticket that can't be had, from a key distribution center that does not answer for example,
// costs the connection, and the next server is tried: a session that is connected goes on. A server
// that refuses the client ends the session, with zklock.ErrAuth; so does one whose clock is more
// than five minutes away from the client's.
package kerberos
