package layout_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/releases"
)

// The table of the servers page is that of package releases; -update enters it.
func TestTheServersPageHasTheTicketsOfPackageReleases(t *testing.T) {
	const file, begin, end = root + "/docs/servers.md", "<!-- releases -->\n", "<!-- end -->\n"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	want := before + begin + releases.Markdown() + end + after
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text), "-update enters it")
	require.Contains(t, string(text), "**"+releases.First+" or later.**")
	require.Contains(t, pages(t)["docs/faq.md"], "["+releases.First+" or later](servers.md)")
}
