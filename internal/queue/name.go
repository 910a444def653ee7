package queue

import (
	"fmt"
	"strings"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

const idLength = 39

// madeWith reports whether a sequential create of prefix, which ends with a contender's label, may have made the znode name.
func madeWith(prefix, name string) bool {
	number, ok := strings.CutPrefix(name, prefix)
	_, numbered := recipe.Parse(name)
	return ok && numbered && (len(number) == 10 || len(number) == 11 && number[0] == '-')
}

// hasOurForm reports whether name, of the contender n, has the form that this library gives it. Curator's have it too, but leave
// no mark: the watch for one does not fire.
func hasOurForm(name string, n recipe.Name) bool {
	return len(name) >= idLength && strings.HasPrefix(name, "_c_") && madeWith(name[:idLength]+n.Label(), name)
}

// kept returns a name as it is stored and shown. Long ones, which only neighbours make, are cut, since a thousand waiters
// would store a thousand copies. Cut names of one length and beginning count as the same; their data are not read.
func kept(name string) string {
	if len(name) <= 16<<10 {
		return strings.Clone(name)
	}
	return fmt.Sprintf("%s (%d bytes)", text.Foreign(name), len(name))
}
