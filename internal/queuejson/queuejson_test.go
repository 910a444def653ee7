package queuejson_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queuejson"
)

// Scenario 50: foreign texts are cut, and their control characters are escaped, so that JSON
// decodes them unchanged.
func TestTextOfOtherProgramsIsTruncatedAndEscaped(t *testing.T) {
	owner := "a\u202eb\u2028c\u009bd\x1b[2Je\x7ff\U000e0001g<&>世"
	q := queuejson.New("/l")
	q.Kind, q.Holding = "mutex", 1
	q.Line = append(q.Line, queuejson.NewMember(8, queuejson.Contender[int64]{
		Node: "/l/" + strings.Repeat("ä", 1<<20), Owner: owner,
		Host: strings.Repeat("h", 1<<20) + "\xff", Size: 5,
	}))
	for _, indent := range []string{"", "  "} {
		text, err := queuejson.Marshal(q, indent)
		require.NoError(t, err)
		require.Less(t, len(text), 15_000)
		for _, r := range string(text) {
			require.False(t, strings.ContainsRune("\u202e\u2028\u009b\x1b\x7f\U000e0001", r), "%q",
				r)
		}
		var back queuejson.Queue
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, owner, back.Line[0].Owner)
		require.Equal(t, 1000, utf8.RuneCountInString(back.Line[0].Host))
		require.Equal(t, 5000, utf8.RuneCountInString(back.Line[0].Node))
		require.Equal(t, q, back)
	}
}
