package doctor

import (
	"context"
	"strconv"
	"strings"

	"github.com/zklock/locker/internal/session"
)

// Ephemerals are the ephemeral znodes of one session. The session's end is one transaction with the
// list of their paths.
type Ephemerals struct {
	Session int64 `json:"session"`
	Count   int   `json:"count"`
	Bytes   int   `json:"bytes"` // of the list, as that transaction has it
}

// ephemerals asks a server for the session with the longest list of ephemeral znodes, of all
// clients' sessions. It returns nil if there is none, or if that is unknown: then it notes so in
// v.Unknown.
func (x *examination) ephemerals(ctx context.Context, v *Server) *Ephemerals {
	ctx, cancel := context.WithTimeout(ctx, x.Patience)
	defer cancel()
	answer, err := session.FourLetter(ctx, x.Session, v.Addr, "dump")
	if err == nil && !strings.Contains(answer, dumped) {
		err = errWord("dump", answer)
	}
	if err != nil {
		v.unknown("how many ephemeral znodes other sessions have", err)
		return nil
	}
	return longestList(answer)
}

// dumped begins the part of dump's answer that has the ephemeral znodes. For each session it has a
// line with the id, and then a line for each path, which begins with a tab.
const dumped = "ephemeral nodes dump:"

// longestList returns the longest list of ephemeral znodes in dump's answer, or nil if it has none.
func longestList(answer string) *Ephemerals {
	_, answer, _ = strings.Cut(answer, dumped)
	var longest, e Ephemerals
	for line := range strings.Lines(answer) {
		path, isPath := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "\t")
		if !isPath {
			// The list begins with its length, in 4 bytes.
			e = Ephemerals{Session: sessionIn(line), Bytes: 4}
			continue
		}
		if e.Session == 0 {
			continue // of another part of the answer
		}
		e.Count++
		e.Bytes += 4 + len(path) // a path has its length before it
		if e.Bytes > longest.Bytes {
			longest = e
		}
	}
	if longest.Session == 0 {
		return nil
	}
	return &longest
}

// sessionIn returns the session's id that a line of dump's answer has, or 0 if it has none.
func sessionIn(line string) int64 {
	hex, _ := strings.CutSuffix(strings.TrimPrefix(line, "0x"), ":\n")
	id, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return 0
	}
	return int64(id)
}
