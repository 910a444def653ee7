package zktest_test

import (
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An independent codec is an independent witness: the server must not share a line with any client.
func TestTheServerImportsTheStandardLibraryOnly(t *testing.T) {
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range parsed.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			assert.NotContains(t, strings.Split(p, "/")[0], ".", "%s imports %s", f.Name(), p)
		}
	}
}
