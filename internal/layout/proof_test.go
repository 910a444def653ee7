package layout_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	assumption = regexp.MustCompile(`^\| A(\d+) \| .+ \| (.+) \|$`)
	testName   = regexp.MustCompile("`([\\w/]+\\.(?:Test|Fuzz)\\w+)`")
)

// Each assumption of the proof names its tests, or says that it has none.
func TestEveryAssumptionOfTheProofPointsToTestsThatExist(t *testing.T) {
	exist := map[string]bool{}
	eachTest(t, func(name, _ string) { exist[name] = true })
	text, err := os.ReadFile(root + "/docs/proof.md")
	require.NoError(t, err)
	rows := 0
	for line := range strings.Lines(string(text)) {
		m := assumption.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		rows++
		tests := testName.FindAllStringSubmatch(m[2], -1)
		assert.True(t, len(tests) > 0 || m[2] == "*stated, not tested*", "no test of A%s", m[1])
		for _, name := range tests {
			assert.True(t, exist[name[1]], "A%s: there is no %s", m[1], name[1])
		}
		assert.Greater(t, strings.Count(string(text), "A"+m[1]), 1, "nothing rests on A%s", m[1])
	}
	assert.Equal(t, 12, rows, "assumptions")
}
