package playground_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/playground"
)

var update = flag.Bool("update", false, "redraw the pictures in docs/timelines")

const pictures = "../../docs/timelines"

// tell plays a story in simulated time, and returns its picture and how it ended.
func tell(t *testing.T, script playground.Script, rules playground.Rules) (picture string, end playground.State) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := playground.Open(script, rules)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, s.Play(script))
		picture, end = s.Picture(time.Hour), s.State()
	})
	return picture, end
}

// The pictures of docs/when-things-fail.md show what the present code does, and every run draws the same ones.
func TestThePicturesShowWhatTheCodeDoes(t *testing.T) {
	page, err := os.ReadFile("../../docs/when-things-fail.md")
	require.NoError(t, err)
	for _, script := range playground.Scripts {
		picture, end := tell(t, script, playground.Rules{})
		for _, g := range end.Guarantees {
			assert.True(t, g.Holds, "%s: %s: %s", script.Name, g.Name, g.Detail)
		}
		file := filepath.Join(pictures, script.Name+".svg")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(picture), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), picture, "go test ./internal/playground -update redraws it")
		link := fmt.Sprintf("![%s](timelines/%s.svg)\n\nStory `%s`", script.Title, script.Name, script.Name)
		assert.True(t, strings.Contains(string(page), link), "docs/when-things-fail.md lacks %q", link)
	}
	drawn, err := filepath.Glob(pictures + "/*.svg")
	require.NoError(t, err)
	require.Len(t, drawn, len(playground.Scripts), "a picture without a story")
}
