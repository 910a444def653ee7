package zktest

import "strings"

// ZooKeeper checks paths unevenly: a write's path must be valid, a read's path is looked up as it
// is and not found. So each operation applies these rules for itself.

// validPath reports whether ZooKeeper accepts the path of a znode: it is absolute, does not end in
// a slash, has no empty, "." or ".." component, and no character that is hard to show.
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
	return !strings.ContainsFunc(p, isHidden)
}

// isHidden reports whether a character is hard to show: control, surrogate, private use or special.
// Java has two surrogates for a character beyond 16 bits, so that is one too.
func isHidden(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

// parentOf returns the parent of a path that is to be created or deleted. ok is false if the path
// has no slash, or a NUL: that much the server checks first.
func parentOf(p string) (parent string, ok bool) {
	if !strings.Contains(p, "/") || strings.Contains(p, "\x00") {
		return "", false
	}
	parent, _ = split(p)
	return parent, true
}

// special reports whether the server itself needs the znode.
func special(p string) bool {
	return p == "/" || p == "/zookeeper" || p == "/zookeeper/quota" || p == "/zookeeper/config"
}
