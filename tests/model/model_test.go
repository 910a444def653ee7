package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The small configurations have as many states as the table says, and keep every promise; two
// mutants do not.
func TestTheSmallModelsHoldAndTheirMutantsDoNot(t *testing.T) {
	if _, err := exec.LookPath("spin"); err != nil {
		t.Skip("spin is not installed; make servers installs it through apt")
	}
	text, err := os.ReadFile("result.txt")
	require.NoError(t, err)
	for _, name := range []string{"two clients", "two clients, marks", "crash loop", "permits",
		"lease", "order of two connections believed", "hangs up", "always aside, crash loop", "silent", "pings confirm"} {
		t.Run(name, func(t *testing.T) {
			for _, c := range append(configurations[:len(configurations):len(configurations)],
				mutants...) {
				if c.name != name {
					continue
				}
				r, err := c.check(t.Context())
				require.NoError(t, err)
				if c.wrong != "" {
					require.NotEmpty(t, r.broken, "a mutant that keeps every promise")
					return
				}
				require.Empty(t, r.broken)
				require.Contains(t, string(text),
					fmt.Sprintf("| %s | %d | ", "`"+c.parameters+"`",
						r.states), "run make model again")
				return
			}
			t.Fatal("there is no such configuration")
		})
	}
}

// The table in the repository is that of this list.
func TestTheTableHasEveryConfigurationAndEveryMutant(t *testing.T) {
	text, err := os.ReadFile("result.txt")
	require.NoError(t, err)
	rows := 0
	for _, c := range append(configurations[:len(configurations):len(configurations)], mutants...) {
		row := fmt.Sprintf("| %s | %s | %s", c.model, c.name, c.what+c.wrong)
		require.Equal(t, 1, strings.Count(string(text), row), "%s: run make model again", row)
		rows++
	}
	require.Equal(t, rows,
		strings.Count(string(text), "\n| queue")+strings.Count(string(text),
			"\n| lease")+strings.Count(string(text), "\n| semaphore"))
}

// Every mutant that a model implements is in the list.
func TestEveryMutantOfTheModelsIsChecked(t *testing.T) {
	number := regexp.MustCompile(`(?m)^#define [A-Z_]+ +(\d+) +/\* `)
	for _, model := range []string{"queue", "semaphore", "lease"} {
		text, err := os.ReadFile(model + ".pml")
		require.NoError(t, err)
		_, body, _ := strings.Cut(string(text), "#define MUTANT 0\n#endif\n\n")
		body, _, _ = strings.Cut(body, "\n\n")
		found := number.FindAllStringSubmatch(body, -1)
		require.GreaterOrEqual(t, len(found), 5, model)
		for _, m := range found {
			named := 0
			for _, c := range mutants {
				if c.model == model && strings.HasSuffix(c.parameters, "-DMUTANT="+m[1]) {
					named++
				}
			}
			require.Positive(t, named, "%s: %s", model, m[0])
		}
	}
}

func TestSpinsReportIsParsed(t *testing.T) {
	const counts = "State-vector 60 byte, depth reached 220, errors: %d\n     51536 states, stored\n1.5e+06 transitions (= stored+matched)\n"
	r, err := parse(fmt.Sprintf(counts, 0))
	require.NoError(t, err)
	require.Equal(t, result{states: 51536, transitions: 1500000, depth: 220}, r)

	r, err = parse("pan:1: assertion violated  !((tree[n]&before[me[c]])) (at depth 9)\nWarning: Search not completed\n" + fmt.Sprintf(counts, 1))
	require.NoError(t, err)
	require.Equal(t, "exclusion", r.broken)
	r, err = parse("pan:1: assertion violated (tree[n]&before[me[c]]) (at depth 9)\n" +
		fmt.Sprintf(counts, 1))
	require.NoError(t, err)
	require.Equal(t, "no lost wake-up", r.broken)

	_, err = parse("error: max search depth too small\n" + fmt.Sprintf(counts, 0))
	require.ErrorContains(t, err, "not complete")
	_, err = parse("Warning: Search not completed\n" + fmt.Sprintf(counts, 0))
	require.ErrorContains(t, err, "not complete")
	_, err = parse("pan: reached -DMEMLIM bound\n")
	require.ErrorContains(t, err, "lacks")
	_, err = parse("pan:1: assertion violated (x==1) (at depth 9)\n" + fmt.Sprintf(counts, 1))
	require.ErrorContains(t, err, "no promise")
}
