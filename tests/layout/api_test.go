package layout_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write api/*.txt")

// A change of what users import is a change of api, a file for each package, which a reviewer sees:
// after one that is meant, go test ./tests/layout -update.
func TestTheAPIIsTheRecordedOne(t *testing.T) {
	for _, pkg := range []string{"zklock", "zklock/admin", "zklock/lockfor", "zklock/lockhttp",
		"zklock/otelzklock", "zklock/kerberos", "session", "recipe", "zktest", "zktest/fault"} {
		file := filepath.Join(root, "api", strings.ReplaceAll(pkg, "/", "_")+".txt")
		got := api(t, filepath.Join(root, pkg))
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			continue
		}
		recorded, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(recorded), got,
			"%s: go test ./tests/layout -update, if the change is meant", pkg)
	}
}

// api lists the exported names of the package in dir, one to a line, in order: functions and
// methods with their types, types with their exported fields, constants and variables.
func api(t *testing.T, dir string) string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, f)
		}
	}
	p, err := doc.NewFromFiles(fset, files, "p", doc.Mode(0)) // exported names and fields only
	require.NoError(t, err)
	var lines []string
	add := func(before string, node any) {
		var b bytes.Buffer
		require.NoError(t, printer.Fprint(&b, fset, node))
		// A list of parameters may have its own line, with a comma behind the last one.
		text := strings.Join(strings.Fields(b.String()), " ")
		text = strings.NewReplacer("( ", "(", ", )", ")").Replace(text)
		lines = append(lines, before+text)
	}
	values := func(all []*doc.Value) {
		for _, v := range all {
			for _, name := range v.Names {
				lines = append(lines, v.Decl.Tok.String()+" "+name)
			}
		}
	}
	funcs := func(all []*doc.Func) {
		for _, f := range all {
			f.Decl.Body, f.Decl.Doc = nil, nil
			add("", f.Decl)
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, typ := range p.Types {
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
		for _, spec := range typ.Decl.Specs {
			spec := spec.(*ast.TypeSpec)
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				add("type "+typ.Name+" ", spec.Type)
				continue
			}
			lines = append(lines, "type "+typ.Name+" struct")
			for _, f := range fields.Fields.List {
				for _, name := range f.Names {
					add("type "+typ.Name+" struct, "+name.Name+" ", f.Type)
				}
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}
