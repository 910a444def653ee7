package timeline

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
)

// Sizes in units of the viewBox, which is as wide as a phone; the picture scales with the page.
const (
	width     = 420
	left      = 84 // of the chart; the names of the lanes are left of it
	right     = 24
	top       = 42
	laneHigh  = 46
	lineHigh  = 18
	perLine   = 58 // letters
	axisHigh  = 26
	titleHigh = 24
)

// style serves light and dark pages.
const style = `<style>
text{font:13px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600;font-size:15px}.s{fill:#59636e;font-size:11px}.n{fill:#fff;font-size:10px;text-anchor:middle}
.page{fill:#fff}.grid{stroke:#d1d9e0}.znode{fill:#8c959f}.waits{fill:#d4a72c}.holds{fill:#1a7f37}.stopped{fill:#8250df}.trouble{fill:#cf222e;opacity:.16}.dot{fill:#0969da}.bad{fill:#cf222e}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.s{fill:#9198a1}.n{fill:#fff}.page{fill:#0d1117}.grid{stroke:#3d444d}.znode{fill:#9198a1}.waits{fill:#bb8009}.holds{fill:#2ea043}.stopped{fill:#a371f7}.trouble{fill:#f85149;opacity:.24}.dot{fill:#1f6feb}.bad{fill:#da3633}}
</style>
`

// bars are the positions of the kinds in a lane: distance from its top, and height.
var bars = map[Kind][2]int{Trouble: {2, 40}, Holds: {8, 18}, Waits: {12, 10}, Stopped: {8, 18}, Znode: {30, 5}}

// SVG draws the story, after Close.
func (s *Story) SVG() string {
	chart := top + len(s.Lanes)*laneHigh
	var list [][]string
	lines := 0
	for _, e := range s.events {
		wrapped := wrap(at(e.At)+"  "+e.Text, perLine)
		list = append(list, wrapped)
		lines += len(wrapped)
	}
	kinds := s.kinds()
	high := chart + axisHigh + lineHigh + lines*lineHigh + 14
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n<title>%s</title>\n", width, high, html.EscapeString(s.Title))
	b.WriteString(style)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d"/>`+"\n", width, high)
	fmt.Fprintf(&b, `<text class="t" x="8" y="%d">%s</text>`+"\n", titleHigh, html.EscapeString(s.Title))
	s.drawAxis(&b, chart)
	for i, lane := range s.Lanes {
		fmt.Fprintf(&b, `<text x="8" y="%d">%s</text>`+"\n", top+i*laneHigh+22, html.EscapeString(lane))
	}
	for _, kind := range []Kind{Trouble, Znode, Waits, Holds, Stopped} {
		for _, span := range s.spans {
			if span.Kind == kind {
				bar := bars[kind]
				fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", kind,
					s.x(span.From), top+slices.Index(s.Lanes, span.Lane)*laneHigh+bar[0], max(2, s.x(span.To)-s.x(span.From)), bar[1])
			}
		}
	}
	s.drawEvents(&b, list, chart+axisHigh+lineHigh)
	x := 8
	for _, kind := range kinds { // the key
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="12" height="9" rx="2"/><text class="s" x="%d" y="%d">%s</text>`+"\n",
			kind, x, chart+axisHigh-1, x+16, chart+axisHigh+8, words[kind])
		x += 30 + 6*len(words[kind])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// words are the labels of the key.
var words = map[Kind]string{Znode: "znode exists", Waits: "waits", Holds: "holds: context alive", Stopped: "stopped", Trouble: "fault"}

func (s *Story) kinds() (found []Kind) {
	for _, kind := range []Kind{Waits, Holds, Stopped, Znode, Trouble} {
		if slices.ContainsFunc(s.spans, func(span Span) bool { return span.Kind == kind }) {
			found = append(found, kind)
		}
	}
	return found
}

// x is the place of an instant.
func (s *Story) x(at time.Duration) float64 {
	return left + float64(width-left-right)*float64(at-s.from)/float64(max(s.end-s.from, 1))
}

// drawAxis draws a line at each of four to eight round instants.
func (s *Story) drawAxis(b *strings.Builder, y int) {
	every := 5 * time.Millisecond
	for _, next := range []time.Duration{10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000} {
		if (s.end-s.from)/every > 7 {
			every = next * time.Millisecond
		}
	}
	for t := (s.from + every - 1) / every * every; t <= s.end; t += every {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text class="s" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			s.x(t), s.x(t), top, y, s.x(t), y+13, at(t))
	}
}

// drawEvents draws their numbers into the lanes, and their texts below. Numbers that would overlap are drawn side by
// side.
func (s *Story) drawEvents(b *strings.Builder, list [][]string, y int) {
	taken := map[string]float64{}
	for i, e := range s.events {
		class := "dot"
		if e.Bad {
			class = "bad"
		}
		x := s.x(e.At)
		if before, ok := taken[e.Lane]; ok && x < before+15 {
			x = before + 15
		}
		taken[e.Lane] = x
		mark := func(x float64, y int) {
			fmt.Fprintf(b, `<circle class="%s" cx="%.1f" cy="%d" r="7"/><text class="n" x="%.1f" y="%d">%d</text>`+"\n", class, x, y, x, y+4, i+1)
		}
		mark(min(x, width-8), top+slices.Index(s.Lanes, e.Lane)*laneHigh+17)
		mark(15, y+8)
		for _, line := range list[i] {
			fmt.Fprintf(b, `<text x="28" y="%d">%s</text>`+"\n", y+12, html.EscapeString(line))
			y += lineHigh
		}
	}
}

// at formats an instant.
func at(t time.Duration) string {
	if t < time.Second && t%(100*time.Millisecond) != 0 {
		return fmt.Sprintf("%d ms", t.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", t.Seconds())
}

// wrap breaks a text into lines of at most n letters.
func wrap(text string, n int) (lines []string) {
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > n {
			lines = append(lines, line)
			line = ""
		} else if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
