package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The list follows the code: a mutant whose text is gone would go unnoticed.
func TestEveryMutantFitsTheCode(t *testing.T) {
	require.GreaterOrEqual(t, len(mutants), 15)
	names := map[string]bool{}
	for _, m := range mutants {
		require.False(t, names[m.name], "%s is named twice", m.name)
		names[m.name] = true
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		require.NoError(t, err, m.name)
		broken, err := m.apply(text)
		require.NoError(t, err, m.name)
		require.NotEqual(t, string(text), string(broken), m.name)
		require.NotEmpty(t, m.tests, m.name)
	}
}

// The table in the repository is made from this list, and every mutant in it is caught.
func TestEveryMutantWasCaught(t *testing.T) {
	text, err := os.ReadFile("RESULT.md")
	require.NoError(t, err)
	require.NotContains(t, string(text), notCaught)
	require.Equal(t, len(mutants), strings.Count(string(text), "\n| ")-1, "made for another list: run it again")
	for _, m := range mutants {
		r, ok := m.last(string(text))
		require.True(t, ok, m.name)
		require.Equal(t, slices.Contains(traced, m.name), r.trace != notTraced, "%s: its runs against the model", m.name)
	}
	for _, name := range traced {
		require.True(t, slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == name }), name)
	}
}

func TestTheTestThatFailedIsNamed(t *testing.T) {
	for text, by := range map[string]string{
		"ok\n--- FAIL: TestOne (0.00s)\n    --- FAIL: TestOne/sub (0.00s)\nFAIL\n":                                "TestOne",
		"panic: test timed out after 1s\n\trunning tests:\n\t\tTestTwo (1s)\n\ngoroutine 1 [running]:\n":          "TestTwo (does not end)",
		"panic: TestThree/0 waits for ever\n\ngoroutine 7 [running]:\n":                                           "TestThree (does not end)",
		"panic: runtime error: index out of range\n\ngoroutine 7 [running]:\n\tsession.x()\nFAIL\texample 0.1s\n": "./x: panic: runtime error: index out of range",
	} {
		got, err := failure(text, "./x", false)
		require.NoError(t, err)
		require.Equal(t, by, got)
	}
	_, err := failure("FAIL example [build failed]\n", "./x", false)
	require.ErrorContains(t, err, "without a failed test")
}

func TestTheTestThatCaughtAMutantGoesFirst(t *testing.T) {
	m := mutant{name: "no drift (at all)", wrong: "what is wrong", file: "a.go", tests: []string{"./a -run=X", "./a", "./b"}}
	require.Equal(t, []string{"./a -run=^TestOne$", "./b -run=^TestOne$"},
		m.again("| no drift (at all) | what is wrong | `a.go` | TestOne | 7 s | – |\n"))
	require.Empty(t, m.again("| no drift (at all) | what is wrong | `a.go` | TestOne (does not end) | 7 s | – |\n"))
	require.Empty(t, m.again("| another | what is wrong | `a.go` | TestOne | 7 s | – |\n"))
	require.Empty(t, m.again("| no drift (at all) | what is wrong | `a.go` | NOT CAUGHT | 7 s | – |\n"))
}
