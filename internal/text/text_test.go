package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/text"
)

func TestOrdinal(t *testing.T) {
	var all []string
	for _, n := range []int{1, 2, 3, 4, 11, 12, 13, 21, 102, 113} {
		all = append(all, text.Ordinal(n))
	}
	require.Equal(t, "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 113th", strings.Join(all, " "))
}

func TestTextOfOtherProgramsIsEscapedInMessages(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"plain text, äöü, 世界, �":   "plain text, äöü, 世界, �",
		"\x1b[31mred":              `\x1b[31mred`,
		"two\nlines\r\t":           `two\nlines\r\t`,
		"\xff\xfe":                 `\xff\xfe`,
		"right\u202eto left":       `right\u202eto left`,
		"line\u2028line\u2029":     `line\u2028line\u2029`,
		"\u0085\u009b2J":           `\u0085\u009b2J`,
		"\u200bnothing to see\x00": `\u200bnothing to see\x00`,
		`it's "quoted" \`:          `it's "quoted" \`,
	} {
		require.Equal(t, want, text.Clean(in))
	}
}

func TestShortTruncatesLongText(t *testing.T) {
	require.Equal(t, "abcd…", text.Short("abcdefgh", 5))
	require.Equal(t, `\x1b…`, text.Short("\x1b\x1b\x1b", 5))
	require.Equal(t, "abcde", text.Short("abcde", 5))
	require.Equal(t, "世界世界世", text.Short("世界世界世", 5))
	require.Equal(t, "世界世界…", text.Short("世界世界世界", 5))
	require.Equal(t, `世\n…`, text.Short("世\n\n\n\n", 4))
	long := text.Foreign(strings.Repeat("\u202e", 1<<20))
	require.Equal(t, text.Limit, utf8.RuneCountInString(long))
}

func FuzzForeign(f *testing.F) {
	f.Add("\x1b[2J\n", uint8(7))
	f.Add("plain", uint8(3))
	f.Fuzz(func(t *testing.T, in string, n uint8) {
		out := text.Clean(in)
		for _, r := range out {
			if strings.ContainsRune("\n\r\x00\x1b\u009b\u2028\u202e", r) {
				t.Errorf("%q: %q is there", in, r)
			}
		}
		if text.Clean(out) != out {
			t.Errorf("%q: %q is changed again", in, out)
		}
		short := text.Short(in, int(n)+1)
		if got := utf8.RuneCountInString(short); got > int(n)+1 {
			t.Errorf("%q: %d characters", in, got)
		}
		if utf8.RuneCountInString(out) <= int(n)+1 && short != out {
			t.Errorf("%q: %q for %q", in, short, out)
		}
		if cut, ok := strings.CutSuffix(short, "…"); ok && !strings.HasPrefix(out, cut) {
			t.Errorf("%q: %q is no beginning of %q", in, short, out)
		}
	})
}
