package layout_test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxColumns bounds the lines of Go code and comments. A tab counts as four columns.
const maxColumns = 100

// avoided are words that comments do not use, since they leave open who or what is meant, or are
// no longer said.
var avoided = regexp.MustCompile(
	`\b([Ww]hoever|anew|for ever|the like|[Mm]ostly)\b|(^|\. )(Nil|False|True): `)

func TestCodeAndCommentsArePlain(t *testing.T) {
	all := files(t, true)
	requireNone(t, all, longLines)
	requireNone(t, all, avoidedWords)
}

// longLines returns the lines of a file that are too long. A string literal can't be wrapped, so
// the longest on a line is not counted.
func longLines(s source) ([]string, error) {
	literals := map[int][]string{} // by line
	inside := map[int]bool{}       // lines that a literal of several lines covers
	err := scan(s, func(line int, tok token.Token, lit string) {
		if tok != token.STRING {
			return
		}
		parts := strings.Split(lit, "\n")
		if len(parts) == 1 {
			literals[line] = append(literals[line], lit)
			return
		}
		for i := range parts {
			inside[line+i] = true
		}
	})
	if err != nil {
		return nil, err
	}
	var found []string
	for i, text := range strings.Split(s.text, "\n") {
		line := i + 1
		if inside[line] || isExample(text) || strings.Contains(text, "//nolint") {
			continue
		}
		width := columns(text)
		if all := literals[line]; len(all) > 0 {
			width -= columns(slices.MaxFunc(all, func(a, b string) int {
				return columns(a) - columns(b)
			}))
		}
		if width > maxColumns {
			found = append(found,
				fmt.Sprintf("%s:%d: is longer than %d columns", s.name, line, maxColumns))
		}
	}
	return found, nil
}

// isExample reports whether a line is code, or a table, in a comment.
func isExample(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, "\t"), "//\t")
}

func columns(text string) int {
	return len([]rune(strings.ReplaceAll(text, "\t", "    ")))
}

// avoidedWords returns the comments of a file that use an avoided word.
func avoidedWords(s source) ([]string, error) {
	var found []string
	err := scan(s, func(line int, tok token.Token, lit string) {
		if tok != token.COMMENT {
			return
		}
		if word := avoided.FindString(strings.TrimPrefix(lit, "// ")); word != "" {
			found = append(found, fmt.Sprintf("%s:%d: a comment says %q", s.name, line, word))
		}
	})
	return found, err
}

// scan calls fn for each token of a file, with the line on which it begins.
func scan(s source, fn func(line int, tok token.Token, lit string)) error {
	var failed error
	file := token.NewFileSet().AddFile(s.name, -1, len(s.text))
	var sc scanner.Scanner
	sc.Init(file, []byte(s.text), func(pos token.Position, msg string) {
		failed = fmt.Errorf("%s: %s", pos, msg)
	}, scanner.ScanComments)
	for {
		pos, tok, lit := sc.Scan()
		if tok == token.EOF {
			return failed
		}
		fn(file.Line(pos), tok, lit)
	}
}

func TestTheRulesOfPlainCodeReportViolations(t *testing.T) {
	long := strings.Repeat("x", maxColumns)
	for want, text := range map[string]string{
		"":                         "// " + long[3:],
		"a.go:1: is longer than":   "// " + long,
		"a.go:2: is longer than":   "\nvar x" + long[:maxColumns-8] + "\t= 1",
		"a comment says \"anew\"":  "package a // begins anew",
		"a comment says \"Nil: \"": "// f returns it. x\n// Nil: none",
	} {
		t.Run(want, func(t *testing.T) {
			check := longLines
			if strings.HasPrefix(want, "a comment") {
				check = avoidedWords
			}
			requireFound(t, check, source{"a.go", text}, want)
		})
	}
	for name, text := range map[string]string{
		"a long string": "var x = `" + long + "`",
		"several lines": "var x = `\n" + long + "\n`",
		"a word inside": "// anewton",
	} {
		t.Run(name, func(t *testing.T) {
			requireFound(t, longLines, source{"a.go", text}, "")
			requireFound(t, avoidedWords, source{"a.go", text}, "")
		})
	}
}
