package session

import (
	"net"
	"strconv"
	"strings"
)

const defaultPort = "2181"

// maxServers bounds a connect string; ensembles have three, five or seven members.
const maxServers = 256

// ParseConnect splits a connect string, "zk1:2181,zk2:2181,zk3:2181/chroot", into its servers (host:port, the port 2181
// when none is given) and the chroot ("" when none is given). Space around a server is ignored. An IPv6 address with a port is written in brackets. The
// error matches ErrConfig, or ErrPath for the chroot, and names the part and the rule. No I/O.
func ParseConnect(connect string) (servers []string, chroot string, err error) {
	hosts := connect
	if scheme, _, ok := strings.Cut(connect, "://"); ok {
		return nil, "", configError("connect string", connect, "begins with "+strconv.Quote(scheme+"://")+", and is no URL: write host:port,host:port/chroot")
	}
	if i := strings.IndexByte(connect, '/'); i >= 0 {
		hosts, chroot = connect[:i], connect[i:]
		if chroot == "/" {
			chroot = ""
		} else if err := CheckPath(chroot); err != nil {
			return nil, "", err
		}
	}
	if hosts == "" {
		return nil, "", configError("connect string", connect, "names no server")
	}
	seen := map[string]bool{}
	for h := range strings.SplitSeq(hosts, ",") {
		addr, rule := parseServer(strings.TrimSpace(h))
		if rule != "" {
			return nil, "", configError("server", h, rule+" (connect string "+strconv.Quote(connect)+")")
		}
		if !seen[addr] { // a server that is named twice is dialled once a round
			seen[addr] = true
			servers = append(servers, addr)
		}
	}
	if len(servers) > maxServers {
		return nil, "", configError("connect string", connect[:40]+"…", "names more than 256 servers")
	}
	return servers, chroot, nil
}

// parseServer returns host:port for one server of a connect string, or the rule that it breaks.
func parseServer(h string) (addr, rule string) {
	if h == "" {
		return "", "is empty"
	}
	if strings.ContainsAny(h, " \t\r\n\x00@?#") {
		return "", "holds a character that no host name has"
	}
	bare := h
	if strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]") {
		bare = h[1 : len(h)-1]
	}
	host, port, err := net.SplitHostPort(h)
	switch {
	case err == nil:
	case net.ParseIP(bare) != nil: // an address alone, IPv6 with or without brackets
		host, port = bare, defaultPort
	case !strings.Contains(h, ":"):
		host, port = h, defaultPort
	default:
		return "", "is not host:port"
	}
	if host == "" {
		return "", "has no host"
	}
	if strings.ContainsAny(host, "[]") {
		return "", "has brackets in its host"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "has a port that is not a number from 1 to 65535"
	}
	return net.JoinHostPort(host, port), ""
}
