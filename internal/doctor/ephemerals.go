package doctor

import (
	"context"
	"strconv"
	"strings"

	"github.com/zklock/locker/internal/session"
)

// Ephemerals are those of one session. Its end is one transaction with the list of their paths.
type Ephemerals struct {
	Session int64 `json:"session"`
	Count   int   `json:"count"`
	Bytes   int   `json:"bytes"` // of the list, as that transaction has it
}

// ephemerals asks a server for the session with the longest list of ephemeral znodes, of all
// clients.
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

// dumped begins the part of dump's answer that has the ephemeral znodes: a line with each session's
// id, and one behind a tab for each path.
const dumped = "ephemeral nodes dump:"

func longestList(answer string) *Ephemerals {
	_, answer, _ = strings.Cut(answer, dumped)
	var longest, e Ephemerals
	for line := range strings.Lines(answer) {
		path, isPath := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "\t")
		switch {
		case isPath && e.Session != 0:
			e.Count++
			e.Bytes += 4 + len(path)
			if e.Bytes > longest.Bytes {
				longest = e
			}
		case !isPath:
			hex, _ := strings.CutSuffix(strings.TrimPrefix(line, "0x"), ":\n")
			id, err := strconv.ParseUint(hex, 16, 64)
			if err != nil { // another part of the answer
				id = 0
			}
			e = Ephemerals{Session: int64(id), Bytes: 4}
		}
	}
	if longest.Session == 0 {
		return nil
	}
	return &longest
}
