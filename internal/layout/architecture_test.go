package layout_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Names on the page: package.Name, package.Type.Member, and files.
var (
	qualified = regexp.MustCompile(`^(session|trusted|recipe|handoff|zklock|zktest)\.\w+(\.\w+)?$`)
	goFile    = regexp.MustCompile(`\b[\w/]+/\w+\.go\b`)
)

// packages are those whose names the pages for contributors use, by their folders.
var packages = []string{"session", "internal/trusted", "recipe", "internal/handoff", "zklock", "zktest"}

func allDeclared(t *testing.T) map[string]bool {
	t.Helper()
	declared := map[string]bool{}
	for _, dir := range packages {
		require.NoError(t, declare(declared, filepath.Join("../..", dir)))
	}
	return declared
}

// The checklists name functions without their package: each must exist in one of them.
func TestEveryNameInTheChecklistsExists(t *testing.T) {
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	require.NoError(t, err)
	declared := allDeclared(t)
	found := 0
	for _, span := range regexp.MustCompile("`[a-z]\\w*\\.\\w+`").FindAllString(string(page), -1) {
		name := strings.Trim(span, "`")
		switch filepath.Ext(name) {
		case ".go", ".work", ".mod", ".sh", ".md":
			continue
		}
		found++
		require.True(t, declared[name] || slices.ContainsFunc(packages, func(dir string) bool {
			return declared[filepath.Base(dir)+"."+name]
		}), "%s is declared nowhere", name)
	}
	require.Positive(t, found)
}

func TestEveryNameOnTheArchitecturePageExists(t *testing.T) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	require.NoError(t, err)
	missing, found := missingNames(string(page), allDeclared(t))
	require.Greater(t, found, 40)
	require.Empty(t, missing)
	for _, file := range goFile.FindAllString(string(page), -1) {
		_, err := os.Stat(filepath.Join("../..", file))
		require.NoError(t, err)
	}
}

func TestTheCheckReportsANameThatDoesNotExist(t *testing.T) {
	missing, found := missingNames("`a.b` `session.State` and `session.Session.Nope`, `zklock.ErrNone`", map[string]bool{"session.State": true, "session.Session": true})
	require.Equal(t, []string{"session.Session.Nope", "zklock.ErrNone"}, missing)
	require.Equal(t, 3, found)
}

// missingNames returns the qualified names in code spans of a page that are not declared, and how many it looked at.
func missingNames(page string, declared map[string]bool) (missing []string, found int) {
	for _, span := range regexp.MustCompile("`[^`\n]+`").FindAllString(page, -1) {
		name := strings.Trim(span, "`")
		if !qualified.MatchString(name) {
			continue
		}
		found++
		if !declared[name] {
			missing = append(missing, name)
		}
	}
	return missing, found
}

// declare enters what the Go files of dir declare: package.Name, and package.Type.Member for methods and fields.
func declare(declared map[string]bool, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			declareOne(declared, file.Name.Name, d)
		}
	}
	return nil
}

func declareOne(declared map[string]bool, pkg string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			recv := d.Recv.List[0].Type
			if star, ok := recv.(*ast.StarExpr); ok {
				recv = star.X
			}
			name = fmt.Sprint(recv) + "." + name
		}
		declared[pkg+"."+name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					declared[pkg+"."+n.Name] = true
				}
			case *ast.TypeSpec:
				declared[pkg+"."+s.Name.Name] = true
				var members *ast.FieldList
				switch t := s.Type.(type) {
				case *ast.StructType:
					members = t.Fields
				case *ast.InterfaceType:
					members = t.Methods
				default:
					continue
				}
				for _, m := range members.List {
					for _, n := range m.Names {
						declared[pkg+"."+s.Name.Name+"."+n.Name] = true
					}
				}
			}
		}
	}
}
