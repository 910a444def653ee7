package layout_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
)

const (
	module = "github.com/zklock/locker"
	driver = "github.com/go-zookeeper/zk"
)

// source is one Go file of the module, by its path below the root ("zklock/mutex.go").
type source struct {
	name string
	text string
}

// forbidden says what the packages in a directory (and below) must not import outside tests, and
// why.
var forbidden = []struct {
	dir     string // "" is the whole module
	imports string // an import path, or everything below it
	why     string
}{
	{"recipe", module + "/internal", "the decision who holds is made of pure functions"},
	{"internal/session", module + "/internal/queue", "session lies below queue"},
	{"internal", module + "/zklock", "what is internal lies below zklock"},
	{"session", module + "/internal",
		"session is what users name: it lies below all that is internal"},
	{"recipe", module + "/zklock", "recipe lies below zklock"},
	{"internal/session", module + "/zktest", "the library does not carry a test server"},
	{"internal/queue", module + "/zktest", "the library does not carry a test server"},
	{"zklock", module + "/zktest", "the library does not carry a test server"},
	{"", module + "/tests", "only tests use what tests are made of"},
	{"", "github.com/stretchr/testify", "only tests assert"},
	{"", "go.opentelemetry.io", "telemetry is the nested module's, zklock/otelzklock"},
}

// driverCalls are the names of the driver that stand for a connection. Its types for values (Stat,
// ACL, Event, errors, operations of a multi) may be used everywhere.
var driverCalls = map[string]bool{
	"Conn": true, "Connect": true, "ConnectWithDialer": true, "Lock": true, "NewLock": true,
}

// violations returns what a file that is not a test breaks, one line each.
func violations(s source) ([]string, error) {
	if strings.HasSuffix(s.name, "_test.go") || below(s.name, "tests") {
		return nil, nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, s.name, s.text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	driverName := ""
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if imported == driver {
			driverName = "zk"
			if spec.Name != nil {
				driverName = spec.Name.Name
			}
		}
		found = append(found, importViolations(s.name, imported)...)
	}
	if driverName == "" || below(s.name, "internal/session/internal/driver") {
		return found, nil
	}
	if driverName == "." {
		return append(found,
				fmt.Sprintf("%s: a dot import of %s hides the use of its connections", s.name,
					driver)),
			nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == driverName && driverCalls[sel.Sel.Name] {
			found = append(found,
				fmt.Sprintf("%s: %s.%s: only package driver uses the library's connections",
					fset.Position(sel.Pos()), driver, sel.Sel.Name))
		}
		return true
	})
	return found, nil
}

func importViolations(name, imported string) []string {
	var found []string
	for _, rule := range forbidden {
		if below(name, rule.dir) && below(imported, rule.imports) &&
			!below(path.Join(module, name), rule.imports) {
			found = append(found, fmt.Sprintf("%s: imports %s: %s", name, imported, rule.why))
		}
	}
	if below(name, "zktest") && !standard(imported) && !below(imported, module+"/zktest") {
		found = append(found,
			fmt.Sprintf(
				"%s: imports %s: zktest uses the standard library only, as an independent witness", name, imported))
	}
	return found
}

// below reports whether p is dir or lies below it.
func below(p, dir string) bool {
	return dir == "" || p == dir || strings.HasPrefix(p, dir+"/")
}

// standard reports whether an import path is the standard library's: those have no dot in their
// first element.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}
