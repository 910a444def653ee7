package recipe_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// A neighbour may call his znodes what he likes, and 1 MB long.
func TestNamesThatOthersGaveAreCutAndEscapedInErrors(t *testing.T) {
	name := "\u202eevil\u2028\u009b" + strings.Repeat("x", 1<<20)
	for _, msg := range []string{
		recipe.Line{Ahead: 1, Holder: "/locks/a/" + name}.String(),
		recipe.Line{Ahead: 1, Who: name}.String(),
		recipe.LineError{Line: recipe.Line{Ahead: 3, Holder: "/locks/a/" + name}}.Error(),
		(&session.OpError{Op: "delete", Path: "/locks/a/" + name, Err: session.ErrConnection}).Error(),
	} {
		require.Contains(t, msg, `\u202eevil\u2028\u009bxxx`)
		require.Less(t, len(msg), 400)
	}
}
