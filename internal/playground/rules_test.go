package playground_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/zklock/locker/internal/playground"
)

// With the library's rules every guarantee holds in every story. Other libraries' rules break them, in the stories
// where they must.
func TestTheLibrarysRulesKeepEveryGuaranteeAndOtherRulesBreakThem(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rules  playground.Rules
		broken map[string][]string // by story
	}{
		{"this library", playground.Rules{}, nil},
		{"no token", playground.Rules{NoToken: true}, map[string][]string{"stopped-process": {"No write is lost"}}},
		{"no lease clock", playground.Rules{NoLeaseClock: true}, map[string][]string{
			"cut-holder": {"One holder"}, "cut-follower": {"One holder"}, "deposed-leader": {"One holder"}}},
		{"neither", playground.Rules{NoToken: true, NoLeaseClock: true}, map[string][]string{
			"cut-holder": {"One holder", "No write is lost"}, "cut-follower": {"One holder", "No write is lost"},
			"deposed-leader": {"One holder", "No write is lost"}, "stopped-process": {"No write is lost"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			broken := map[string][]string{}
			for _, script := range playground.Scripts {
				_, end := tell(t, script, tc.rules)
				for _, g := range end.Guarantees {
					if !g.Holds {
						broken[script.Name] = append(broken[script.Name], g.Name)
					}
				}
			}
			assert.True(t, maps.EqualFunc(tc.broken, broken, func(a, b []string) bool { return assert.ObjectsAreEqual(a, b) }), "broken: %v", broken)
		})
	}
}
