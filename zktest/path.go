package zktest

import "strings"

// ZooKeeper checks paths unevenly: a write's path must be valid, a read's path is looked up as it
// is and not found. So each operation applies these rules for itself.

// validPath is ZooKeeper's rule for the path of a znode: absolute, no slash at the end, no empty,
// "." or ".." component, and none of the characters that are hard to show (control, surrogate,
// private use, specials).
func validPath(p string) bool {
	if p == "/" {
		return true
	}
	if p == "" || p[0] != '/' || p[len(p)-1] == '/' {
		return false
	}
	for _, c := range strings.Split(p[1:], "/") {
		if c == "" || c == "." || c == ".." {
			return false
		}
	}
	for _, r := range p {
		switch {
		case r <= 0x1f, r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0:
			// 0xfff0 and up covers everything beyond the 16 bits of a Java char: two surrogates
			// there
			return false
		}
	}
	return true
}

// parentOf is the rule for a path that is to be created or deleted; ok is false for one without any
// slash.
func parentOf(p string) (parent string, ok bool) {
	if !strings.Contains(p, "/") || strings.Contains(p, "\x00") {
		return "", false
	}
	parent, _ = split(p)
	return parent, true
}

// special names the znodes that the server itself needs.
func special(p string) bool {
	return p == "/" || p == "/zookeeper" || p == "/zookeeper/quota" || p == "/zookeeper/config"
}
