package report

import (
	"strings"
	"unicode/utf8"
)

// table is rows of text; the first column is left-aligned, the others right.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table, as text or as Markdown.
func (t *table) write(b *strings.Builder, md bool) {
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string) {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			switch {
			case i == 0:
				cell += pad
			default:
				cell = pad + cell
			}
			if md {
				b.WriteString("| " + cell + " ")
			} else {
				b.WriteString(cell + "  ")
			}
		}
		if md {
			b.WriteString("|")
		}
		trimRight(b)
		b.WriteByte('\n')
	}
	line(t.head)
	if md {
		for i, w := range width {
			b.WriteString("|" + strings.Repeat("-", w+1))
			if i == 0 {
				b.WriteString("-")
			} else {
				b.WriteString(":")
			}
		}
		b.WriteString("|\n")
	}
	for _, row := range t.rows {
		line(row)
	}
}

// trimRight takes blanks off the end of the last line.
func trimRight(b *strings.Builder) {
	s := strings.TrimRight(b.String(), " ")
	b.Reset()
	b.WriteString(s)
}
