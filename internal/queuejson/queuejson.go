// Package queuejson is the one form in which the queue of a lock is written as JSON: by zklock
// queue, ls and top, and by the status page of package lockhttp.
//
// It lies below zklock and zklock/admin, whose contenders it takes as a Contender.
package queuejson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Queue is a lock's queue, or a part of it.
type Queue struct {
	Path    string   `json:"path"`
	Error   string   `json:"error,omitempty"`   // why the other fields are empty
	Kind    string   `json:"kind,omitempty"`    // of the first in line
	Holding int      `json:"holding"`           // contenders that hold, whether they are in Line or not
	Waiting int      `json:"waiting"`           // contenders that wait, likewise
	Line    []Member `json:"line"`              // in order
	Permits int      `json:"permits,omitempty"` // of a semaphore: how many there are
}

// Member is one contender.
type Member struct {
	Position int       `json:"position"` // from 1
	Holds    bool      `json:"holds"`
	Kind     string    `json:"kind"`
	Permits  int       `json:"permits,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Since    time.Time `json:"since,omitzero"` // the ensemble's clock; unknown when the znode may not be read
	Session  string    `json:"session"`        // hexadecimal, as in the ensemble's logs
	Token    int64     `json:"token"`
	Node     string    `json:"node"`
	Data     []byte    `json:"data,omitempty"` // base64
	Size     int       `json:"size,omitempty"` // of all data of the znode, in bytes, also when they are not included
}

// Lengths, in characters, to which foreign texts are cut.
const (
	maxText = 1000
	maxPath = 5000 // longer than any path of this library
)

// New returns the queue of the lock at path, with nobody in Line.
func New(path string) Queue {
	return Queue{Path: cut(path, maxPath), Line: []Member{}}
}

// Contender has the fields of an admin.Contender, which can be converted to it. T is zklock.Token.
type Contender[T ~int64] struct {
	Node    string
	Kind    string
	Holds   bool
	Permits int
	Token   T
	Session int64
	Since   time.Time
	Owner   string
	Host    string
	PID     int
	Data    []byte
	Size    int
}

// NewMember returns a contender in its JSON form.
func NewMember[T ~int64](position int, k Contender[T]) Member {
	return Member{
		Position: position,
		Holds:    k.Holds,
		Kind:     k.Kind,
		Permits:  k.Permits,
		Owner:    cut(k.Owner, maxText),
		Host:     cut(k.Host, maxText),
		PID:      k.PID,
		Since:    k.Since.UTC(),
		Session:  fmt.Sprintf("%#x", uint64(k.Session)),
		Token:    int64(k.Token),
		Node:     cut(k.Node, maxPath),
		Data:     k.Data,
		Size:     k.Size,
	}
}

// cut cuts a text to at most n characters, with an ellipsis as the last.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	count := 0
	for i := range s {
		if count++; count == n {
			if _, size := utf8.DecodeRuneInString(s[i:]); i+size == len(s) {
				return s
			}
			return s[:i] + "…"
		}
	}
	return s
}

// Marshal is json.MarshalIndent, without indentation if indent is "", and safe for a terminal:
// unprintable characters are JSON escapes. A line feed ends it.
func Marshal(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	plain := b.Bytes()
	out := make([]byte, 0, len(plain))
	for len(plain) > 0 {
		r, size := utf8.DecodeRune(plain) // json has replaced what is not UTF-8
		switch {
		case r < 0x7f || strconv.IsPrint(r):
			out = append(out, plain[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		plain = plain[size:]
	}
	return out, nil
}
