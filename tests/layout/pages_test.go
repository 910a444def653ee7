package layout_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages returns the texts of the pages for users, by their paths from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(root + "/" + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		for _, file := range found {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			rel, err := filepath.Rel(root, file)
			require.NoError(t, err)
			all[filepath.ToSlash(rel)] = string(text)
		}
	}
	for _, name := range []string{"README.md", "SECURITY.md", "CHANGELOG.md"} {
		require.Contains(t, all, name)
	}
	return all
}

var (
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	scheme  = regexp.MustCompile(`^[a-z]+:`)
)

// anchors returns those that GitHub makes of the headings of a page.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		base := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		name := base
		for n := 1; all[name]; n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		all[name] = true
	}
	return all
}

func TestEveryRelativeLinkOfEveryPageResolves(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		links := link.FindAllStringSubmatch(code.ReplaceAllString(fenced.ReplaceAllString(text, ""),
			"`"), -1)
		for _, m := range links {
			if scheme.MatchString(m[1]) {
				continue
			}
			file, anchor, hasAnchor := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			_, err := os.Stat(filepath.Join(root, target))
			if !assert.NoError(t, err, "%s links to %s", name, m[1]) || !hasAnchor {
				continue
			}
			there, isPage := all[target]
			assert.True(t, isPage && anchors(there)[anchor],
				"%s links to %s, and there is no such heading", name, m[1])
		}
	}
}

func TestTheReadmeLinksToEveryPage(t *testing.T) {
	all := pages(t)
	for name := range all {
		if name != "README.md" {
			assert.Contains(t, all["README.md"], "]("+name, "a page without a link")
		}
	}
}
