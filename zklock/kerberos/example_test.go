package kerberos_test

import (
	"context"
	"log"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/kerberos"
)

func ExampleGSSAPI() {
	conf, err := config.Load("/etc/krb5.conf")
	if err != nil {
		log.Fatal(err)
	}
	kt, err := keytab.Load("/etc/app.keytab")
	if err != nil {
		log.Fatal(err)
	}
	mechanism := kerberos.GSSAPI(client.NewWithKeytab("app", "EXAMPLE.ORG", kt, conf))
	defer mechanism.Close() // after the client
	c, err := zklock.Dial(context.Background(), "zk1.example.org:2181,zk2.example.org:2181",
		zklock.WithSASL(mechanism))
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
}
