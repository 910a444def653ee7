package ensemble

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// fourLetterBound is how long one four-letter word may take; a stopped server accepts the
// connection and sends nothing.
const fourLetterBound = 2 * time.Second

// FourLetter sends one of ZooKeeper's four-letter words and returns the whole answer. It blocks for
// at most 2 s. It may be called concurrently.
func (n *Node) FourLetter(word string) (answer string, err error) {
	conn, err := net.DialTimeout("tcp", n.addr, fourLetterBound)
	if err != nil {
		return "", fmt.Errorf("ensemble: %s: %w", word, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(fourLetterBound)); err != nil {
		return "", fmt.Errorf("ensemble: %s: %w", word, err)
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("ensemble: %s: %w", word, err)
	}
	b, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("ensemble: %s: %w", word, err)
	}
	return string(b), nil
}

// Mode returns "standalone", "leader" or "follower", and "" while the server serves no clients:
// when it is down, stopped, or without a quorum. It blocks for at most 2 s. It may be called
// concurrently.
func (n *Node) Mode() string {
	mode, err := n.mode()
	if err != nil {
		return "" // the caller treats every reason alike; the wait helpers report it
	}
	return mode
}

// mode is Mode with the error if there is none.
func (n *Node) mode() (string, error) { return n.srvr("Mode: ") }

// Version returns the server's release, for example "3.8.0". The error says whether the server did
// not answer, as one without a quorum does, or returned no version. It blocks for at most 2 s. It
// may be called concurrently.
func (n *Node) Version() (string, error) {
	version, err := n.srvr("Zookeeper version: ")
	if err != nil {
		return "", err
	}
	return version[:max(0, strings.IndexFunc(version+" ", func(r rune) bool {
		return r != '.' && (r < '0' || r > '9')
	}))], nil
}

// Zxid returns the latest transaction that the server knows. It blocks for at most 2 s. It may be
// called concurrently.
func (n *Node) Zxid() (int64, error) {
	text, err := n.srvr("Zxid: ")
	if err != nil {
		return 0, err
	}
	zxid, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("ensemble: srvr of %s: zxid: %w", n.addr, err)
	}
	return zxid, nil
}

// srvr returns the rest of the line that begins with key in a server's answer to srvr.
func (n *Node) srvr(key string) (string, error) {
	answer, err := n.FourLetter("srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(answer) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "",
		fmt.Errorf("ensemble: srvr of %s shows no %q: %q", n.addr, key, strings.TrimSpace(answer))
}

// Mntr returns one number from the monitoring word mntr, for example "zk_watch_count" or
// "zk_num_alive_connections". The error says whether the server did not answer or knows no such
// number. It blocks for at most 2 s. It may be called concurrently.
func (n *Node) Mntr(key string) (int64, error) {
	answer, err := n.FourLetter("mntr")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(answer) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == key {
			v, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return 0, fmt.Errorf("ensemble: mntr %s of %s: %w", key, n.addr, err)
			}
			return int64(v), nil
		}
	}
	return 0,
		fmt.Errorf("ensemble: mntr of %s has no number %q (%d bytes, beginning %.60q)", n.addr, key,
			len(answer), answer)
}

// WatchCount returns how many watches this server keeps for the sessions connected to it
// (zk_watch_count). It blocks for at most 2 s. It may be called concurrently.
func (n *Node) WatchCount() (int64, error) { return n.Mntr("zk_watch_count") }
