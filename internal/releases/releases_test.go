package releases_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/releases"
)

// open returns the numbers of the tickets that a release has open.
func open(t *testing.T, version string) (ids []string) {
	t.Helper()
	v, ok := releases.Parse(version)
	require.True(t, ok)
	for _, ticket := range releases.Open(v) {
		ids = append(ids, ticket.ID[len("ZOOKEEPER-"):])
	}
	return ids
}

func TestATicketIsOpenInAReleaseWhoseTagLacksItsFix(t *testing.T) {
	for version, want := range map[string][]string{
		"3.5.9":  {"4785", "3911", "4712", "4394", "4837", "4882"},
		"3.5.10": {"4785", "4712", "4394", "4837", "4882"},
		"3.6.4":  {"4785", "4712", "4394", "4837", "4882"},
		"3.7.2":  {"4785", "4712", "4394", "4837", "4882"},
		"3.8.4":  {"4785", "4712", "4394", "4837", "4882"},
		"3.8.6":  {"4712", "4394", "4837", "4882"},
		"3.9.1":  {"4785", "4712", "4394", "4837", "4882"},
		"3.9.2":  {"4712", "4394", "4837", "4882"},
		"3.9.3":  {"4925", "4837", "4882"},
		"3.9.4":  {"4837", "4882"},
		"3.10.0": {"4837", "4882"},
	} {
		assert.Equal(t, want, open(t, version), version)
	}
}

func TestTheRecommendedReleaseHasOnlyOpenTicketsThatNoReleaseFixes(t *testing.T) {
	first, ok := releases.Parse(releases.First)
	require.True(t, ok)
	for _, ticket := range releases.Open(first) {
		assert.Empty(t, ticket.Fixed, ticket.ID)
	}
}

func TestAVersionIsParsedFromAServersAnswer(t *testing.T) {
	for text, want := range map[string]string{
		"3.8.0--1, built on 2023-10-30 18:40 UTC": "3.8.0",
		"3.9.3":                              "3.9.3",
		"3.4.6-1569965, built on 02/20/2014": "3.4.6",
	} {
		v, ok := releases.Parse(text)
		require.True(t, ok, text)
		assert.Equal(t, want, v.String())
	}
	for _, text := range []string{"", "v26.9.1.195-testing", "3.8", "3..8", "99999999999999999999.1.1"} {
		_, ok := releases.Parse(text)
		assert.False(t, ok, text)
	}
}

func TestTheTableNamesEveryTicketAndTheReleasesInWhichItIsOpen(t *testing.T) {
	table := releases.Markdown()
	assert.Contains(t, table, "| [4785](https://issues.apache.org/jira/browse/ZOOKEEPER-4785) |")
	assert.Contains(t, table, "| all before 3.8.5, 3.9.2; never fixed in 3.7 and earlier |")
	assert.Contains(t, table, "| from 3.9.3, fixed in 3.9.4 |")
	for _, ticket := range releases.Tickets {
		assert.Contains(t, table, ticket.What)
	}
}
