package playground_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/playground"
)

// With the library's rules every guarantee holds in every story. Without tokens, or without the lease clock, exactly the
// guarantees in the table break, in the stories that it names.
func TestGuaranteesBreakOnlyWithoutTokensOrWithoutALeaseClock(t *testing.T) {
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

// An Unlock at a server that is cut off takes until the client has connected to another one.
func TestAZnodeOfAnUnlockThatIsUnderWayDoesNotCountAsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := playground.Open(playground.Free, playground.Rules{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		act := func(what, who string) {
			require.NoError(t, s.Act(what, who))
			time.Sleep(100 * time.Millisecond)
		}
		act("lock", "A")
		require.True(t, s.State().Clients[0].Holds)
		act("leave", s.State().Clients[0].Server)
		act("unlock", "A")
		require.False(t, s.State().Clients[0].Holds)
		var late time.Duration // the deletion, after the Unlock's beginning
		for begun := time.Now(); len(s.State().Queue) > 0; late = time.Since(begun) {
			time.Sleep(10 * time.Millisecond)
		}
		require.Greater(t, late, 1500*time.Millisecond, "the deletion came too early to look as if it were missing")
		time.Sleep(2 * time.Second)
		for _, g := range s.State().Guarantees {
			require.True(t, g.Holds, "%s: %s", g.Name, g.Detail)
		}
	})
}
