package session

import (
	"strings"
	"unicode/utf8"
)

// maxPath keeps a path with a name of ours behind it well inside the server's packet limit (1 MB by default)
// and inside what tools show; no lock needs more.
const maxPath = 4096

// CheckPath reports why ZooKeeper, or this package, refuses path: the error matches ErrPath and names path and rule.
// A path begins with a slash, does not end with one (but for the root itself), has no empty, "." or ".." component,
// is UTF-8 without control characters, surrogates and other code points that ZooKeeper excludes, and is at most
// 4,096 bytes long. No I/O.
func CheckPath(path string) error {
	switch {
	case len(path) > maxPath:
		return pathError(path, "is longer than 4096 bytes")
	case !utf8.ValidString(path):
		return pathError(path, "is not UTF-8")
	}
	if err := checkNamed(path); err != nil {
		return err
	}
	for _, r := range path {
		if excluded(r) {
			return pathError(path, "holds a character that ZooKeeper excludes")
		}
	}
	return nil
}

// checkNamed is what is left of CheckPath where a znode is read, watched, changed or deleted: the components must lead
// to one znode. What else its name may be is for the server to say, which has it or not: names that a list brought are
// others' choice, and a contender with a name of 10,000 bytes has to be waited for, shown and removed like any other.
func checkNamed(path string) error {
	switch {
	case path == "":
		return pathError(path, "is empty")
	case path[0] != '/':
		return pathError(path, "does not begin with a slash")
	case path == "/":
		return nil
	case path[len(path)-1] == '/':
		return pathError(path, "ends with a slash")
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		switch name {
		case "":
			return pathError(path, "has an empty component")
		case ".", "..":
			return pathError(path, "has a relative component "+name)
		}
	}
	return nil
}

// excluded lists the code points that ZooKeeper's PathUtils refuses: controls, the private use area, specials.
// Code points above the basic plane reach the Java server as surrogate pairs, which it refuses as well.
func excluded(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

// join puts the chroot before a path of the caller's.
func (s *Session) join(path string) string {
	switch {
	case s.cfg.chroot == "":
		return path
	case path == "/":
		return s.cfg.chroot
	}
	return s.cfg.chroot + path
}

// strip takes the chroot off a path of the server's.
func (s *Session) strip(path string) string {
	p := strings.TrimPrefix(path, s.cfg.chroot)
	if p == "" {
		return "/"
	}
	return p
}
