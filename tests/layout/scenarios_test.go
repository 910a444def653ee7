package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	scenarioRow  = regexp.MustCompile(`(?m)^\| (\d+) \| .+ \|$`)
	scenarioName = regexp.MustCompile(`^TestScenario(\d+)_`)
	scenarioText = regexp.MustCompile(`(?i)\bscenarios? (\d+(?:(?:, and |, | and | to )\d+)*)`)
	numberOrTo   = regexp.MustCompile(`\d+|to`)
)

func TestEveryScenarioHasTestsThatNameIt(t *testing.T) {
	named := namedScenarios(t)
	text, err := os.ReadFile(root + "/docs/maintainers/scenarios.md")
	require.NoError(t, err)
	rows := map[int]bool{}
	for _, m := range scenarioRow.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(m[1])
		assert.False(t, rows[n], "two rows of scenario %d", n)
		rows[n] = true
		assert.NotEmpty(t, named[n], "scenario %d: no test names it", n)
	}
	require.NotEmpty(t, rows)
	for n, tests := range named {
		assert.True(t, rows[n], "%v name scenario %d, which has no row",
			slices.Sorted(maps.Keys(tests)), n)
	}
}

// namedScenarios returns the tests of all modules that name a scenario, in their names or doc
// comments, as "zklock.TestX", and the scenes of zklock's scripts that do.
func namedScenarios(t *testing.T) map[int]map[string]bool {
	t.Helper()
	named := map[int]map[string]bool{}
	names := func(test string, scenarios []int) {
		for _, n := range scenarios {
			if named[n] == nil {
				named[n] = map[string]bool{}
			}
			named[n][test] = true
		}
	}
	eachTest(t, func(name, doc string) {
		names(name, numbersIn(name[strings.LastIndex(name, ".")+1:], doc))
	})
	scripts, err := filepath.Glob(root + "/zklock/testdata/scripts/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, p := range scripts {
		text, err := os.ReadFile(p)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if scene, ok := strings.CutPrefix(line, "scene "); ok {
				names(filepath.Base(p)+": "+strings.TrimSpace(scene), numbersIn("", scene))
			}
		}
	}
	return named
}

// eachTest calls fn for every test and fuzz target of all modules, as "zklock.TestX", with its doc
// comment.
func eachTest(t *testing.T, fn func(name, doc string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(p))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv == nil &&
				(strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				fn(filepath.ToSlash(dir)+"."+f.Name.Name, f.Doc.Text())
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// numbersIn returns the scenarios that a test's name or doc comment names.
func numbersIn(name, doc string) (all []int) {
	if m := scenarioName.FindStringSubmatch(name); m != nil {
		n, _ := strconv.Atoi(m[1])
		all = append(all, n)
	}
	for _, m := range scenarioText.FindAllStringSubmatch(strings.Join(strings.Fields(doc), " "),
		-1) {
		first, span := 0, false
		for _, word := range numberOrTo.FindAllString(m[1], -1) {
			n, err := strconv.Atoi(word)
			if err != nil {
				span = true
				continue
			}
			if !span {
				first = n
			} else {
				first++
			}
			for ; first <= n; first++ {
				all = append(all, first)
			}
			first, span = n, false
		}
	}
	return all
}

func TestScenariosAreReadFromNamesAndComments(t *testing.T) {
	for _, c := range []struct {
		name, doc string
		want      []int
	}{
		{"TestScenario17_X", "", []int{17}},
		{"TestX", "Scenario 3, and\nscenario 4: so", []int{3, 4}},
		{"TestX", "Scenarios 5 to 7, and 9.", []int{5, 6, 7, 9}},
		{"TestX", "scenarios 48 and\n49", []int{48, 49}},
		{"TestX", "in this scenario 3 clients", []int{3}},
		{"TestX", "two scenarios", nil},
	} {
		require.Equal(t, c.want, numbersIn(c.name, c.doc), c.doc)
	}
}
