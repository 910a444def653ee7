package layout_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

const longestFile, longestFunction = 400, 70 // lines

func TestNoFileAndNoFunctionIsTooLong(t *testing.T) {
	requireNone(t, files(t, true), tooLong)
}

func TestTheCheckReportsFilesAndFunctionsThatAreTooLong(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("\n", n) }
	for name, c := range map[string]struct {
		text string
		want string // part of what is found; empty: nothing
	}{
		"a file of the greatest length":     {"package p" + lines(longestFile), ""},
		"a file one line longer":            {"package p" + lines(longestFile+1), "p.go has 401 lines"},
		"a function of the greatest length": {"package p\nfunc f() {" + lines(longestFunction-1) + "}\n", ""},
		"a function one line longer":        {"package p\nfunc f() {" + lines(longestFunction) + "}\n", "p.go:2:1: f has 71 lines"},
		"a method":                          {"package p\nfunc (x t) f() {" + lines(longestFunction) + "}\n", "p.go:2:1: f has 71 lines"},
	} {
		t.Run(name, func(t *testing.T) { requireFound(t, tooLong, source{name: "p.go", text: c.text}, c.want) })
	}
}

// tooLong returns a file's violations of the limits, one line each.
func tooLong(s source) ([]string, error) {
	var found []string
	if n := strings.Count(s.text, "\n"); n > longestFile {
		found = append(found, fmt.Sprintf("%s has %d lines, more than %d", s.name, n, longestFile))
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, s.name, s.text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		begin := fset.Position(f.Pos())
		if n := fset.Position(f.End()).Line - begin.Line + 1; n > longestFunction {
			found = append(found, fmt.Sprintf("%s: %s has %d lines, more than %d", begin, f.Name.Name, n, longestFunction))
		}
	}
	return found, nil
}
