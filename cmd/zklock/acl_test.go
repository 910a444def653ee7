package main

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestAnAccessListIsParsedAsZkCliParsesIt(t *testing.T) {
	t.Parallel()
	all := []int32{zk.PermCreate, zk.PermDelete, zk.PermRead, zk.PermWrite, zk.PermAdmin}
	for i, letter := range "cdrwa" {
		got, err := parseACL([]string{"world:anyone:" + string(letter)})
		require.NoError(t, err)
		require.Equal(t, []zk.ACL{{Perms: all[i], Scheme: "world", ID: "anyone"}}, got)
	}
	for text, want := range map[string][]zk.ACL{
		"world:anyone:cdrwa": {{Perms: zk.PermAll, Scheme: "world", ID: "anyone"}},
		"auth::cdrwa":        {{Perms: zk.PermAll, Scheme: "auth"}},
		"digest:user:kB2Ed+/x5RiZ9aeTu3I8vm0hdGk=:rw": {
			{
				Perms:  zk.PermRead | zk.PermWrite,
				Scheme: "digest",
				ID:     "user:kB2Ed+/x5RiZ9aeTu3I8vm0hdGk=",
			},
		},
		"ip:10.0.0.0/8:r,world:anyone:rr": {{Perms: zk.PermRead, Scheme: "ip", ID: "10.0.0.0/8"},
			{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}},
		"ip:fe80::c:r": {{Perms: zk.PermRead, Scheme: "ip", ID: "fe80::c"}},
		"x509:CN=a,OU=b:cr,sasl:bob:cd": {
			{Perms: zk.PermCreate | zk.PermRead, Scheme: "x509", ID: "CN=a,OU=b"},
			{Perms: zk.PermCreate | zk.PermDelete, Scheme: "sasl", ID: "bob"},
		},
	} {
		got, err := parseACL([]string{text})
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "world", "world:anyone", "world:anyone:", "world:anyone:x", "world:anyone:r,",
		":anyone:r", "a b::r",
	} {
		_, err := parseACL([]string{text})
		require.Equal(t, exitUsage, codeOf(err), text)
	}
}
