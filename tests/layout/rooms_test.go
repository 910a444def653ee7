package layout_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The packages of a session, and what each of them may import of this module. A package that is
// not named here may not exist: to add one, decide first what it may know.
var mayImport = map[string][]string{
	"internal/session/internal/wire":  {},
	"internal/session/internal/clock": {},
	"internal/session/internal/lease": {"internal/session/internal/clock"},
	"internal/session/failure":        {"internal/session/internal/wire", "internal/text"},
	"internal/session/internal/probe": {"internal/session/internal/wire",
		"internal/session/failure"},
	"internal/session/internal/dial": {"internal/session/failure", "internal/jitter",
		"internal/text", "session"},
	"internal/session/internal/pipeline": {"internal/session/internal/wire",
		"internal/session/internal/clock", "internal/session/failure"},
	"internal/session/internal/link": {"internal/session/internal/wire",
		"internal/session/internal/clock", "internal/session/internal/pipeline",
		"internal/session/failure", "session"},
	"internal/session/internal/driver": {"internal/session/internal/wire",
		"internal/session/internal/pipeline", "internal/session/internal/link"},
	"internal/session/internal/watch": {"internal/session/internal/wire",
		"internal/session/internal/pipeline", "internal/session/internal/link",
		"internal/session/failure"},
	"internal/session/internal/ephemeral": {"internal/session/internal/wire",
		"internal/session/internal/pipeline", "internal/session/failure"},
}

// pure are the packages that do no I/O: they may not import net or os, nor anything below them.
var pure = []string{
	"internal/session/internal/wire", "internal/session/internal/lease",
	"internal/session/internal/pipeline",
	"internal/session/internal/watch", "internal/session/internal/ephemeral",
}

// roomViolations returns what a file of a session's packages imports and must not.
func roomViolations(s source) ([]string, error) {
	room := path.Dir(s.name)
	if !below(room, "internal/session") || room == "internal/session" ||
		strings.HasSuffix(s.name, "_test.go") {
		return nil, nil
	}
	allowed, known := mayImport[room]
	if !known {
		return []string{fmt.Sprintf("%s: tests/layout does not say what package %s may import",
			s.name, room)}, nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), s.name, s.text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		ours, isOurs := strings.CutPrefix(imported, module+"/")
		io := below(imported, "net") || below(imported, "os")
		switch {
		case isOurs && !slices.Contains(allowed, ours):
			found = append(found,
				fmt.Sprintf("%s: imports %s: %s may import %v only", s.name, imported, room,
					allowed))
		case io && slices.Contains(pure, room):
			found = append(found,
				fmt.Sprintf("%s: imports %s: %s does no I/O", s.name, imported, room))
		}
	}
	return found, nil
}

func TestEachPackageOfASessionImportsOnlyWhatItMayKnow(t *testing.T) {
	all := files(t, false)
	requireNone(t, all, roomViolations)
	rooms := map[string]bool{}
	for _, s := range all {
		rooms[path.Dir(s.name)] = true
	}
	for room := range mayImport {
		assert.True(t, rooms[room], "tests/layout names %s, and there is no such package", room)
	}
}

// What a package is for, what it may not know, and which goroutines it has stands in its doc.go.
func TestEachPackageOfASessionHasADoc(t *testing.T) {
	docs := map[string]string{}
	for _, s := range files(t, false) {
		if path.Base(s.name) == "doc.go" {
			docs[path.Dir(s.name)] = s.text
		}
	}
	for room := range mayImport {
		require.Contains(t, docs[room], "// Package "+path.Base(room)+" ", "%s/doc.go", room)
		assert.Contains(t, docs[room], "goroutine", "%s/doc.go says which goroutines it has", room)
	}
}

func TestTheRulesOfASessionsPackagesReportViolations(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		text string
		want string // part of the violation; empty: allowed
	}{
		"a link on the lease": {"internal/session/internal/link/conn.go",
			`import _ "github.com/zklock/locker/internal/session/internal/lease"`, "may import"},
		"a lease on the session": {"internal/session/internal/lease/keeper.go",
			`import _ "github.com/zklock/locker/internal/session"`, "may import"},
		"a lease on the network": {"internal/session/internal/lease/keeper.go",
			`import _ "net/netip"`, "does no I/O"},
		"a link on the network": {"internal/session/internal/link/conn.go", `import _ "net"`, ""},
		"a link on the protocol": {"internal/session/internal/link/conn.go",
			`import _ "github.com/zklock/locker/internal/session/internal/wire"`, ""},
		"a package without a row": {"internal/session/internal/cache/cache.go", ``, "does not say"},
		"a test of a package": {"internal/session/internal/lease/lease_test.go",
			`import _ "net"`, ""},
		"the session itself": {"internal/session/session.go",
			`import _ "github.com/zklock/locker/internal/session/internal/lease"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireFound(t, roomViolations,
				source{name: c.file, text: "package p\n" + c.text + "\n"}, c.want)
		})
	}
}
