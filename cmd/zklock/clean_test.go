package main

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestNothingThatOthersWroteReachesATerminalAsItIs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                         "",
		"plain text, äöü, 世界":      "plain text, äöü, 世界",
		"\x1b[31mred":              `\x1b[31mred`,
		"two\nlines\r\t":           `two\nlines\r\t`,
		"\xff\xfe":                 `\xff\xfe`,
		"right\u202eto left":       `right\u202eto left`,
		"\u0085\u009b2J":           `\u0085\u009b2J`,
		"\u200bnothing to see\x00": `\u200bnothing to see\x00`,
	} {
		require.Equal(t, want, clean(in))
	}
	require.Equal(t, "abcd…", short("abcdefgh", 5))
	require.Equal(t, `\x1b…`, short("\x1b\x1b\x1b", 5))
	require.Equal(t, "abcde", short("abcde", 5))
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[2J\n")
	f.Add("plain")
	f.Fuzz(func(t *testing.T, in string) {
		out := clean(in)
		for _, r := range out {
			if !unicode.IsPrint(r) {
				t.Errorf("%q: %q can't be printed", in, r)
			}
		}
		if clean(out) != out {
			t.Errorf("%q: %q is changed again", in, out)
		}
		if n := len([]rune(short(in, 7))); n > 7 {
			t.Errorf("%q: %d characters", in, n)
		}
	})
}

func TestAges(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                    "0s",
		59*time.Second + 999999999:      "59s",
		61 * time.Second:                "1m01s",
		2*time.Hour + 5*time.Minute:     "2h05m",
		74*time.Hour + 59*time.Minute:   "3d02h",
		1000*24*time.Hour + time.Second: "1000d00h",
	} {
		require.Equal(t, want, age(d))
	}
	var all []string
	for _, n := range []int{1, 2, 3, 4, 11, 12, 13, 21, 102, 113} {
		all = append(all, ordinal(n))
	}
	require.Equal(t, "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 113th", strings.Join(all, " "))
}
