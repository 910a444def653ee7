// Package text makes foreign text (names and data of znodes, owners, messages of a server or a
// dialer) fit for an error, a log line, a terminal and a page: no invisible characters, no line
// ends, no change of the writing direction, and no more of it than is readable.
package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limit is the length, in characters, to which Foreign cuts.
const Limit = 200

// Foreign is Short with a length that suits an error or a log line.
func Foreign(s string) string { return Short(s, Limit) }

// Clean writes unprintable characters as Go does in a string literal: control characters (\n, \x1b,
// \u009b), marks that turn the direction of writing (\u202e), separators of lines (\u2028), bytes
// that are not UTF-8 (\xff). Everything else stays, including the backslash: the result is for
// reading, not for parsing.
func Clean(s string) string {
	for i, r := range s {
		if !printable(s[i:], r) {
			return string(escape([]byte(s[:i]), s[i:], math.MaxInt))
		}
	}
	return s
}

// Short is Clean, cut to at most n characters with an ellipsis as the last. It reads no more of s
// than it shows.
func Short(s string, n int) string {
	if len(s) <= n { // as many characters at most
		if c := Clean(s); len(c) <= n {
			return c
		}
	}
	out := escape(nil, s, n+1)
	for i := range string(out) { // the nth character's end, if there are more
		if n--; n == 0 {
			_, size := utf8.DecodeRune(out[i:])
			if i+size < len(out) {
				return string(out[:i]) + "…"
			}
			break
		}
	}
	return string(out)
}

// escape appends s to out until s ends or n characters and more have been appended.
func escape(out []byte, s string, n int) []byte {
	for s != "" && n > 0 {
		r, size := utf8.DecodeRuneInString(s)
		piece := s[:size]
		switch {
		case printable(s, r):
			n--
		case r == utf8.RuneError:
			piece = fmt.Sprintf(`\x%02x`, s[0])
			n -= len(piece)
		default:
			piece = strings.Trim(strconv.QuoteRune(r), "'")
			n -= len(piece)
		}
		out, s = append(out, piece...), s[size:]
	}
	return out
}

// printable reports whether r, which s begins with, may stay as it is.
func printable(s string, r rune) bool {
	if r == utf8.RuneError {
		_, size := utf8.DecodeRuneInString(s)
		return size > 1 // U+FFFD itself
	}
	return strconv.IsPrint(r)
}

// Ordinal writes 1st, 2nd, 3rd, 4th.
func Ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
