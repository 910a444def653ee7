package recipe_test

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
)

// rwName returns the name of a reader or writer with that number; id distinguishes contenders with
// the same number.
func rwName(kind byte, number int32, id int) string {
	marks := map[byte]string{'R': "__READ__", 'W': "__WRIT__", 'M': "lock-", 'S': "lease-1-"}
	return fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-%s%010d", id, marks[kind], number)
}

// in returns a directory with these children.
func in(names ...string) recipe.Listing { return recipe.Listing{Names: names} }

// Contenders of another kind of lock are reported, and never decide who holds.
func TestContendersOfAnotherKindAreForeign(t *testing.T) {
	type pair struct{ own, other byte }
	for _, k := range []pair{
		{'R', 'M'}, {'W', 'M'}, {'M', 'R'}, {'M', 'W'}, {'R', 'S'},
		{'W', 'S'}, {'M', 'S'}, {'S', 'R'}, {'S', 'W'}, {'S', 'M'},
	} {
		own, other := rwName(k.own, 2, 0), rwName(k.other, 1, 1)
		v := recipe.Decide(in(other, own), own, 1, nil)
		require.Equal(t, []string{other}, v.OtherKinds, "%c and %c", k.own, k.other)
		require.Zero(t, v.Ahead)
		v = recipe.Decide(in(other), own, 0, nil)
		want := recipe.Verdict{OtherKinds: []string{other}}
		require.Equal(t, want, v, "when its own is not there")
	}
	for _, k := range []pair{{'R', 'W'}, {'W', 'R'}, {'R', 'R'}, {'W', 'W'}} {
		own, other := rwName(k.own, 2, 0), rwName(k.other, 1, 1)
		require.Empty(t, recipe.Decide(in(other, own), own, 0, nil).OtherKinds)
	}
}

// Two contenders may have equal numbers, as Curator's read lock under its own write lock has. The
// writer is not in a reader's way if the reader came first, and the decisions about other
// contenders stay the same.
func TestEqualNumbersOfAReaderAndAWriterAreToldApartByTheirAge(t *testing.T) {
	write, read := rwName('W', 5, 1), rwName('R', 5, 2)
	later, writer := rwName('R', 6, 3), rwName('W', 7, 4)
	first := map[string]int64{write: 1, read: 2}
	line := in(read, write, later, writer)
	require.Equal(t, []string{write, read}, recipe.Decide(line, read, 0, nil).Unknown)
	require.True(t, recipe.Decide(line, write, 0, first).Holds)
	require.False(t, recipe.Decide(line, read, 0, first).Holds)
	require.Equal(t, write, recipe.Decide(line, later, 0, nil).Watch)
	require.Equal(t, 1, recipe.Decide(line, later, 0, nil).Ahead)
	require.Equal(t, later, recipe.Decide(line, writer, 0, nil).Watch)
	require.True(t, recipe.Decide(in(read, later, writer), later, 0, nil).Holds,
		"when the writer's has gone")
	require.Equal(t, read, recipe.Decide(in(read, writer), writer, 0, nil).Watch)
}

const (
	uuid = "0f0e0d0c-0b0a-4908-8706-050403020100"
	id   = "_c_" + uuid
	hex  = "0f0e0d0c0b0a49088706050403020100"
)

// names are children as we and other clients name them, and names of other programs. A name that is
// no contender's has the zero value.
var names = map[string]recipe.Name{
	// A mutex's contenders, by their numbers.
	id + "-lock-0000000000":  {Kind: recipe.Lock},
	id + "-lock-0000000012":  {Kind: recipe.Lock, Number: 12},
	id + "-lock-2147483647":  {Kind: recipe.Lock, Number: math.MaxInt32},
	id + "-lock--2147483648": {Kind: recipe.Lock, Number: math.MinInt32},
	id + "-lock--2147483647": {Kind: recipe.Lock, Number: math.MinInt32 + 1},
	id + "-lock--1000000000": {Kind: recipe.Lock, Number: -1_000_000_000},
	id + "-lock--999999999":  {Kind: recipe.Lock, Number: -999_999_999},
	id + "-lock--000000001":  {Kind: recipe.Lock, Number: -1},

	// go-zookeeper's.
	"_c_" + hex + "-lock-0000000003": {Kind: recipe.Lock, Number: 3},

	// Kazoo's, the last one with our pattern.
	hex + "__lock__0000000004":  {Kind: recipe.Lock, Number: 4},
	hex + "__lock__-000000004":  {Kind: recipe.Lock, Number: -4},
	hex + "__lock__-2147483648": {Kind: recipe.Lock, Number: math.MinInt32},
	hex + "__rlock__0000000005": {Kind: recipe.Read, Number: 5},
	hex + "-lock-0000000006":    {Kind: recipe.Lock, Number: 6},

	// Readers and writers, as Curator's.
	id + "-__READ__0000000007":  {Kind: recipe.Read, Number: 7},
	id + "-__WRIT__0000000008":  {Kind: recipe.Write, Number: 8},
	id + "-__WRIT__-2147483648": {Kind: recipe.Write, Number: math.MinInt32},

	// The old LeaderSelector's, and x-lock- of ZooKeeper's own recipe.
	"lock-0000000009":        {Kind: recipe.Lock, Number: 9},
	"x-lock-lock-0000000010": {Kind: recipe.Lock, Number: 10},

	// A semaphore's contenders, and names with permits that no contender wants.
	id + "-lease-3-0000000011":  {Kind: recipe.Permits, Number: 11, Permits: 3},
	id + "-lease-3--000000011":  {Kind: recipe.Permits, Number: -11, Permits: 3},
	id + "-lease-3--2147483648": {Kind: recipe.Permits, Number: math.MinInt32, Permits: 3},
	id + "-lease-536870912-0000000011": {
		Kind: recipe.Permits, Number: 11, Permits: recipe.MaxPermits,
	},
	id + "-lease-536870913-0000000011":           {},
	id + "-lease-0-0000000011":                   {},
	id + "-lease--0000000011":                    {},
	id + "-lease--1-0000000011":                  {},
	id + "-lease-99999999999999999999-000000001": {},

	// It does not matter what stands before the label.
	id + "-0x64-__READ__0000000005": {Kind: recipe.Read, Number: 5},

	// Candidates with ranks, and names whose text before the label is no rank.
	id + "-rank-7-lock-0000000012":          {Kind: recipe.Lock, Number: 12, Rank: 7},
	id + "-rank-2147483647-lock--000000001": {Kind: recipe.Lock, Number: -1, Rank: recipe.MaxRank},
	id + "-rank-0-9-lock-0000000012":        {Kind: recipe.Lock, Number: 12, Since: 9},
	id + "-rank-7-9-lock-0000000012":        {Kind: recipe.Lock, Number: 12, Rank: 7, Since: 9},
	id + "-rank-7-9-1-lock-0000000012":      {Kind: recipe.Lock, Number: 12},
	id + "-rank-2147483648-lock-0000000012": {Kind: recipe.Lock, Number: 12},
	id + "-rank-0-lock-0000000012":          {Kind: recipe.Lock, Number: 12},
	id + "-rank--lock-0000000012":           {Kind: recipe.Lock, Number: 12},
	id + "-trunk-7-lock-0000000012":         {Kind: recipe.Lock, Number: 12},

	// Numbers in a form that servers do not write, and one in a form that they do.
	"lock--000000000":           {}, // minus zero
	"lock-000000001":            {}, // nine digits without a sign
	"lock--0000000001":          {}, // ten for a small negative number
	"lock--1000000000":          {Kind: recipe.Lock, Number: -1_000_000_000},
	"x__lock__-2147483649":      {},
	id + "-lock-":               {},
	id + "-lock-1":              {},
	id + "-lock-00000001":       {}, // eight digits
	id + "-lock-00000000001":    {}, // eleven
	id + "-lock-2147483648":     {}, // more than 32 bits
	id + "-lock--2147483649":    {},
	id + "-lock---000000001":    {}, // two signs
	id + "-lock-+000000001":     {},
	id + "-lock-00000000x1":     {},
	id + "-lock-0000000001 ":    {},
	id + "-lock-０００００００００１":     {}, // digits of another script
	id + "-lock-0000000001-old": {},

	// Names of other programs.
	id + "-latch-0000000001":   {}, // another recipe
	"_c_x":                     {}, // makes the driver's own lock panic
	id + "-LOCK-0000000001":    {},
	id + "-__LOCK__0000000001": {},
	"0000000001":               {},
	"-000000001":               {},
	"-0000000001":              {},
	"":                         {},
	"0":                        {},
	"README":                   {},
	"\xff\xfe-lock-":           {},
	"locks":                    {},
	"lock":                     {},
	"lock0000000001":           {},
	"__lock__":                 {},
	"__lock__x":                {},
}

func TestNamesOfContenders(t *testing.T) {
	for name, want := range names {
		got, ok := recipe.Parse(name)
		require.Equal(t, want.Kind != recipe.None, ok, "%q", name)
		require.Equal(t, want, got, "%q", name)
		n, ok := number(name)
		require.Equal(t, want.Kind != recipe.None, ok, "%q", name)
		require.Equal(t, want.Number, n, "%q", name)
	}
}

// FuzzNumber compares the parser with the rule of names: a label, and after it a number of 32 bits
// as a server writes it.
func FuzzNumber(f *testing.F) {
	for name := range names {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := recipe.Parse(name)
		want, is := byRule(name)
		require.Equal(t, is, ok, "%q", name)
		if !ok {
			return
		}
		require.Equal(t, want.number, got.Number, "%q", name)
		require.Equal(t, []int{want.rank, want.since}, []int{got.Rank, got.Since}, "%q", name)
		require.True(t, strings.HasSuffix(name, fmt.Sprintf("%010d", got.Number)), "%q", name)
	})
}

var (
	rule = regexp.MustCompile(`(?s)^.*` +
		`(lock-|__lock__|__READ__|__WRIT__|__rlock__|-lease-([0-9]+)-)(-?[0-9]{9,10})$`)
	ranked = regexp.MustCompile(`(?s)-rank-([0-9]+)(?:-([0-9]+))?-$`)
)

// ruled is what the rule reads from a name.
type ruled struct {
	number      int32
	rank, since int
}

// byRule reads a name by the rule. It returns false if the name is no contender's.
func byRule(name string) (r ruled, ok bool) {
	// The expression leaves as much as it can to the number, so that the second "-" of
	// "lock--000000001" is its sign.
	m := rule.FindStringSubmatch(name)
	if m == nil {
		return r, false
	}
	label, permits, digits := m[1], m[2], m[3]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || digits != fmt.Sprintf("%010d", n) {
		return r, false
	}
	r.number = int32(n)
	if permits != "" {
		n, err := strconv.ParseInt(permits, 10, 64)
		return r, err == nil && n >= 1 && n <= recipe.MaxPermits
	}
	text := ranked.FindStringSubmatch(strings.TrimSuffix(name, label+digits))
	if text == nil {
		return r, true
	}
	first, err := strconv.ParseInt(text[1], 10, 32)
	second, err2 := strconv.ParseInt("0"+text[2], 10, 32)
	if err == nil && err2 == nil {
		r.rank, r.since = int(first), int(second)
	}
	return r, true
}

// number is the part of Parse that these tests use.
func number(name string) (int32, bool) {
	n, ok := recipe.Parse(name)
	return n.Number, ok
}
