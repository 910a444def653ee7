package sessionfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Key is what a session can be closed with.
type Key struct {
	ID       int64    `json:"id"`
	Password [16]byte `json:"password"`
}

// maxKeys bounds the keys of a record. The oldest is dropped for a new one: its session then lasts
// until the ensemble ends it. A Client that stays up has one session, and for some seconds after an
// outage two.
const maxKeys = 16

// record is what a file says.
type record struct {
	file              // for which it was written
	Ensemble [32]byte `json:"ensemble"` // a hash of its servers
	PID      int      `json:"pid"`      // of the process that wrote it
	Keys     []Key    `json:"sessions"` // not known to be closed
}

// file is what tells a file from any other that there is, or was since the system started.
type file struct {
	Boot   string `json:"boot"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// A file consists of one page, since a process that is killed as it writes has written a whole
// page, or nothing of it, on every file system that Open allows. It has three lines: title, the
// hash of the rest, and the record in JSON, padded with spaces.
const (
	pageSize = 4096
	anyTitle = "zklock session file"
	title    = anyTitle + ", version 1: belongs to one process, and is of no use elsewhere\n"
)

// page returns the contents of the file for r.
func (r *record) page() ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	const hashLine = 2*sha256.Size + 1
	room := pageSize - len(title) - hashLine - 1
	if len(body) > room {
		return nil, fmt.Errorf("its record of %d bytes is longer than %d", len(body), room)
	}
	body = append(body, bytes.Repeat([]byte(" "), room-len(body))...)
	body = append(body, '\n')
	hash := sha256.Sum256(body)
	p := append([]byte(title), hex.EncodeToString(hash[:])...)
	p = append(p, '\n')
	return append(p, body...), nil
}

// errForeign says that a file has contents that are not ours, which must not be overwritten.
var errForeign = errors.New("is not empty, and not a session file")

// parse returns the record of a file with that contents. An error that does not match errForeign
// says why no record can be read from a session file.
func parse(contents []byte) (r record, err error) {
	if !bytes.HasPrefix(contents, []byte(anyTitle)) {
		return r, errForeign
	}
	rest, isKnown := bytes.CutPrefix(contents, []byte(title))
	if !isKnown {
		return r, errors.New("it was written by another version")
	}
	line, body, _ := bytes.Cut(rest, []byte("\n"))
	hash := sha256.Sum256(body)
	if len(contents) != pageSize || string(line) != hex.EncodeToString(hash[:]) {
		return r, errors.New("it is damaged: its checksum is wrong")
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return record{}, fmt.Errorf("it is damaged: %w", err)
	}
	return r, nil
}

// hashOf returns what an ensemble's servers have in common, whatever their order is.
func hashOf(servers []string) [sha256.Size]byte {
	sorted := slices.Sorted(slices.Values(servers))
	return sha256.Sum256([]byte(strings.Join(sorted, ",")))
}
