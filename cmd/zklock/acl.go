package main

import (
	"regexp"
	"strings"

	"github.com/go-zookeeper/zk"
)

// aclEntry matches one entry of an access list in zkCli.sh's form, scheme:id:perms. An id may
// contain colons and commas, as ids of digest, ip and x509 do. So the scheme ends at the first
// colon, and the permissions begin after the last colon before a comma or the end.
var aclEntry = regexp.MustCompile(`^([a-zA-Z0-9]+):(.*?):([cdrwa]+)(?:,|$)`)

// permissions are zkCli.sh's letters.
var permissions = map[rune]int32{
	'c': zk.PermCreate,
	'd': zk.PermDelete,
	'r': zk.PermRead,
	'w': zk.PermWrite,
	'a': zk.PermAdmin,
}

// parseACL returns the entries of access lists as zkCli.sh takes them, for example
// "world:anyone:r,digest:user:HASH:cdrwa".
func parseACL(lists []string) ([]zk.ACL, error) {
	var all []zk.ACL
	for _, list := range lists {
		entries, err := parseACLList(list)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	return all, nil
}

func parseACLList(list string) ([]zk.ACL, error) {
	var entries []zk.ACL
	for rest := list; ; {
		m := aclEntry.FindStringSubmatch(rest)
		if m == nil {
			return nil, usagef("--acl %s: %q: want scheme:id:perms, perms of the letters cdrwa, "+
				"for example auth::cdrwa", list, rest)
		}
		entry := zk.ACL{Scheme: m[1], ID: m[2]}
		for _, letter := range m[3] {
			entry.Perms |= permissions[letter]
		}
		entries = append(entries, entry)
		rest = strings.TrimPrefix(rest, m[0])
		if rest == "" && !strings.HasSuffix(m[0], ",") {
			return entries, nil
		}
	}
}
