package report_test

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/bench/match"
	"github.com/zklock/locker/internal/bench/report"
	"github.com/zklock/locker/internal/bench/servers"
	"github.com/zklock/locker/internal/bench/stats"
)

// result is three rounds of made-up figures: by round, the floor's rate, ours and zk.Lock's.
func result() *match.Result {
	r := &match.Result{Command: "bench", Machine: "a <small> machine", Rounds: 3, Seconds: 2, Left: []string{"Kazoo Lock: not there"}}
	for _, c := range match.Contestants {
		if c.Name == "raw" || c.Name == "zklock" || c.Name == "zk.Lock" {
			r.Contestants = append(r.Contestants, c)
		}
	}
	for _, s := range match.Settings {
		if s.Name == "alone" || s.Name == "sixteen" {
			r.Settings = append(r.Settings, s)
		}
	}
	for _, s := range r.Settings {
		for round, rates := range [][3]float64{{1000, 990, 500}, {2000, 1960, 1000}, {1500, 1200, 900}} {
			for i, name := range []string{"raw", "zklock", "zk.Lock"} {
				d := time.Duration(float64(time.Second) / rates[i])
				f := stats.Figures{Rate: rates[i], Cycles: int(2 * rates[i]), Write: stats.Spread{P50: d / 2}}
				if name != "raw" {
					f.HandOver = stats.Spread{N: 9, P50: d, P99: 2 * d}
				}
				r.Cells = append(r.Cells, match.Cell{Setting: s.Name, Contestant: name, Round: round, Figures: f})
			}
		}
	}
	r.Wire = []match.Wire{{Setting: "two", Contestant: "zklock", Cycles: 100, Traffic: servers.Traffic{Requests: 400, Notifications: 50, Bytes: [2]int64{30000, 1234500}}}}
	r.Lines = []match.LineUp{
		{Contestant: "zklock", Releases: 0, Heap: 5, Resident: -1, Traffic: servers.Traffic{Requests: 1, Notifications: 1}},
		{Contestant: "zklock", Waiters: 15, Releases: 15, Heap: 5, Resident: -1, Traffic: servers.Traffic{Requests: 31, Notifications: 16}},
		{Contestant: "zklock", Waiters: 1024, Releases: 1024, Heap: 1024 << 12, Resident: -1, Traffic: servers.Traffic{Requests: 2049, Notifications: 2049}},
	}
	r.Kills = []match.Kill{{Contestant: "zklock", Timeout: 4 * time.Second, Took: 3 * time.Second}, {Contestant: "zklock", Timeout: 4 * time.Second, Took: 4 * time.Second}}
	return r
}

func TestTextShowsMediansAndRatiosWithinARound(t *testing.T) {
	text := report.Text(result(), false)
	// The ratios of the rounds are 0.99, 0.98 and 0.80; that of the medians, 1200/1500, is another one.
	require.Regexp(t, `(?m)^zklock +1,200 +0\.98 `, text)
	require.Regexp(t, `(?m)^go-zookeeper zk\.Lock +900 +0\.50 +– +– +1\.11 ms +2\.22 ms$`, text)
	require.Regexp(t, `(?m)^zklock +two +4\.00 +0\.50 +300 +12,345$`, text)
	require.Regexp(t, `(?m)^zklock +1024 +2\.00 +2\.00 +– +4\.0 KB +–$`, text)
	require.Regexp(t, `(?m)^zklock +4s +3\.50 s +4\.00 s$`, text)
	require.Contains(t, text, "Left out: Kazoo Lock: not there")
}

func TestMarkdownIsOneTableForEachSetting(t *testing.T) {
	text := report.Text(result(), true)
	require.Contains(t, text, "**one client alone**\n\n| ")
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "|") {
			require.True(t, strings.HasSuffix(line, "|"), line)
		}
	}
	require.Regexp(t, `\|-+\|-+:\|`, text)
}

func TestGoalsAreJudgedByTheMedianRatio(t *testing.T) {
	reached := map[string]bool{}
	for _, g := range report.Goals(result()) {
		reached[g.What+" "+g.Measured] = g.Reached
	}
	require.Equal(t, map[string]bool{
		"alone: cycle, × floor 1.02":                                 true,
		"alone: cycles/s, × go-zookeeper zk.Lock 1.96":               true,
		"16 clients: hand-over, × one write of the floor alone 2.04": false,
		"16 clients: cycles/s, × zk.Lock 1.96":                       true,
		"requests for each hand-over, 1024 waiting 2.00":             true,
		"notifications for each hand-over, 1024 waiting 2.00":        false,
	}, reached)
}

func TestAResultSurvivesWritingAndReadingJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	require.NoError(t, report.WriteJSON(file, result()))
	back, err := report.ReadJSON(file)
	require.NoError(t, err)
	require.Equal(t, report.Text(result(), false), report.Text(back, false))
	require.Equal(t, report.SVG(result()), report.SVG(back))
}

func TestDrawingIsWellFormedAndItsBarsAreInProportion(t *testing.T) {
	svg := report.SVG(result())
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Contains(t, string(svg), "a &lt;small&gt; machine")
	require.Contains(t, string(svg), "prefers-color-scheme:dark")
	require.Regexp(t, `class="floor" x="270" y="30" width="370"`, string(svg), "the longest")
	require.Regexp(t, `class="ours" x="270" y="52" width="296"`, string(svg), "1200 to 1500")
	require.Regexp(t, `class="other" x="270" y="74" width="222"`, string(svg), "900 to 1500")
}
