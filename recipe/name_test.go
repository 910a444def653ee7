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

// rwName returns the name of a reader or writer with that number; id distinguishes contenders with the same number.
func rwName(kind byte, number int32, id int) string {
	mark := map[byte]string{'R': "__READ__", 'W': "__WRIT__", 'M': "lock-", 'S': "lease-1-"}[kind]
	return fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-%s%010d", id, mark, number)
}

// Contenders of another kind of lock are reported, and never decide who holds.
func TestContendersOfAnotherKindAreForeign(t *testing.T) {
	for _, k := range []struct{ own, other byte }{
		{'R', 'M'}, {'W', 'M'}, {'M', 'R'}, {'M', 'W'}, {'R', 'S'}, {'W', 'S'}, {'M', 'S'}, {'S', 'R'}, {'S', 'W'}, {'S', 'M'},
	} {
		own, other := rwName(k.own, 2, 0), rwName(k.other, 1, 1)
		v := recipe.Decide(recipe.Listing{Names: []string{other, own}}, own, 1, nil)
		require.Equal(t, []string{other}, v.OtherKinds, "%c and %c", k.own, k.other)
		require.Zero(t, v.Ahead)
		require.Equal(t, recipe.Verdict{OtherKinds: []string{other}}, recipe.Decide(recipe.Listing{Names: []string{other}}, own, 0, nil), "when its own is not there")
	}
	for _, k := range []struct{ own, other byte }{{'R', 'W'}, {'W', 'R'}, {'R', 'R'}, {'W', 'W'}} {
		require.Empty(t, recipe.Decide(recipe.Listing{Names: []string{rwName(k.other, 1, 1), rwName(k.own, 2, 0)}}, rwName(k.own, 2, 0), 0, nil).OtherKinds)
	}
}

// Two contenders may have equal numbers, as Curator's read lock under its own write lock has. The writer is not in a reader's way if
// the reader came first, and the decisions about other contenders stay the same.
func TestEqualNumbersOfAReaderAndAWriterAreToldApartByTheirAge(t *testing.T) {
	write, read := rwName('W', 5, 1), rwName('R', 5, 2)
	later, writer := rwName('R', 6, 3), rwName('W', 7, 4)
	first := map[string]int64{write: 1, read: 2}
	in := func(names ...string) recipe.Listing { return recipe.Listing{Names: names} }
	line := in(read, write, later, writer)
	require.Equal(t, []string{write, read}, recipe.Decide(line, read, 0, nil).Unknown)
	require.True(t, recipe.Decide(line, write, 0, first).Holds)
	require.False(t, recipe.Decide(line, read, 0, first).Holds)
	require.Equal(t, write, recipe.Decide(line, later, 0, nil).Watch)
	require.Equal(t, 1, recipe.Decide(line, later, 0, nil).Ahead)
	require.Equal(t, later, recipe.Decide(line, writer, 0, nil).Watch)
	require.True(t, recipe.Decide(in(read, later, writer), later, 0, nil).Holds, "when the writer's has gone")
	require.Equal(t, read, recipe.Decide(in(read, writer), writer, 0, nil).Watch)
}

const uuid = "0f0e0d0c-0b0a-4908-8706-050403020100"

// names are children as we and other clients name them, and names of other programs; see the table of names in doc.go.
var names = map[string]recipe.Name{
	"_c_" + uuid + "-lock-0000000000":                      {Kind: recipe.Lock},
	"_c_" + uuid + "-lock-0000000012":                      {Kind: recipe.Lock, Number: 12},
	"_c_" + uuid + "-lock-2147483647":                      {Kind: recipe.Lock, Number: math.MaxInt32},
	"_c_" + uuid + "-lock--2147483648":                     {Kind: recipe.Lock, Number: math.MinInt32},
	"_c_" + uuid + "-lock--2147483647":                     {Kind: recipe.Lock, Number: math.MinInt32 + 1},
	"_c_" + uuid + "-lock--1000000000":                     {Kind: recipe.Lock, Number: -1_000_000_000},
	"_c_" + uuid + "-lock--999999999":                      {Kind: recipe.Lock, Number: -999_999_999},
	"_c_" + uuid + "-lock--000000001":                      {Kind: recipe.Lock, Number: -1},
	"_c_0f0e0d0c0b0a49088706050403020100-lock-0000000003":  {Kind: recipe.Lock, Number: 3}, // go-zookeeper
	"0f0e0d0c0b0a49088706050403020100__lock__0000000004":   {Kind: recipe.Lock, Number: 4}, // Kazoo
	"0f0e0d0c0b0a49088706050403020100__lock__-000000004":   {Kind: recipe.Lock, Number: -4},
	"0f0e0d0c0b0a49088706050403020100__lock__-2147483648":  {Kind: recipe.Lock, Number: math.MinInt32},
	"0f0e0d0c0b0a49088706050403020100__rlock__0000000005":  {Kind: recipe.Read, Number: 5},
	"0f0e0d0c0b0a49088706050403020100-lock-0000000006":     {Kind: recipe.Lock, Number: 6}, // Kazoo with our pattern
	"_c_" + uuid + "-__READ__0000000007":                   {Kind: recipe.Read, Number: 7}, // Curator
	"_c_" + uuid + "-__WRIT__0000000008":                   {Kind: recipe.Write, Number: 8},
	"_c_" + uuid + "-__WRIT__-2147483648":                  {Kind: recipe.Write, Number: math.MinInt32},
	"lock-0000000009":                                      {Kind: recipe.Lock, Number: 9}, // the old LeaderSelector, and x-lock- of ZooKeeper's own recipe
	"x-lock-lock-0000000010":                               {Kind: recipe.Lock, Number: 10},
	"_c_" + uuid + "-lease-3-0000000011":                   {Kind: recipe.Permits, Number: 11, Permits: 3},
	"_c_" + uuid + "-lease-3--000000011":                   {Kind: recipe.Permits, Number: -11, Permits: 3},
	"_c_" + uuid + "-lease-3--2147483648":                  {Kind: recipe.Permits, Number: math.MinInt32, Permits: 3},
	"_c_" + uuid + "-lease-536870912-0000000011":           {Kind: recipe.Permits, Number: 11, Permits: recipe.MaxPermits},
	"_c_" + uuid + "-lease-536870913-0000000011":           {},
	"_c_" + uuid + "-lease-0-0000000011":                   {},
	"_c_" + uuid + "-lease--0000000011":                    {},
	"_c_" + uuid + "-lease--1-0000000011":                  {},
	"_c_" + uuid + "-lease-99999999999999999999-000000001": {},
	"_c_" + uuid + "-0x64-__READ__0000000005":              {Kind: recipe.Read, Number: 5}, // whatever stands before the label
	"_c_" + uuid + "-rank-7-lock-0000000012":               {Kind: recipe.Lock, Number: 12, Rank: 7},
	"_c_" + uuid + "-rank-2147483647-lock--000000001":      {Kind: recipe.Lock, Number: -1, Rank: recipe.MaxRank},
	"_c_" + uuid + "-rank-0-9-lock-0000000012":             {Kind: recipe.Lock, Number: 12, Since: 9},
	"_c_" + uuid + "-rank-7-9-lock-0000000012":             {Kind: recipe.Lock, Number: 12, Rank: 7, Since: 9},
	"_c_" + uuid + "-rank-7-9-1-lock-0000000012":           {Kind: recipe.Lock, Number: 12},
	"_c_" + uuid + "-rank-2147483648-lock-0000000012":      {Kind: recipe.Lock, Number: 12},
	"_c_" + uuid + "-rank-0-lock-0000000012":               {Kind: recipe.Lock, Number: 12},
	"_c_" + uuid + "-rank--lock-0000000012":                {Kind: recipe.Lock, Number: 12},
	"_c_" + uuid + "-trunk-7-lock-0000000012":              {Kind: recipe.Lock, Number: 12},
	"lock--000000000":                                      {}, // a server never writes minus zero,
	"lock-000000001":                                       {}, // nine digits without a sign,
	"lock--0000000001":                                     {}, // or ten for a small negative number
	"lock--1000000000":                                     {Kind: recipe.Lock, Number: -1_000_000_000},
	"x__lock__-2147483649":                                 {},
	"_c_" + uuid + "-latch-0000000001":                     {}, // another recipe
	"_c_x":                                                 {}, // makes the driver's own lock panic
	"_c_" + uuid + "-lock-":                                {},
	"_c_" + uuid + "-lock-1":                               {},
	"_c_" + uuid + "-lock-00000001":                        {}, // eight digits
	"_c_" + uuid + "-lock-00000000001":                     {}, // eleven
	"_c_" + uuid + "-lock-2147483648":                      {}, // more than 32 bits
	"_c_" + uuid + "-lock--2147483649":                     {},
	"_c_" + uuid + "-lock---000000001":                     {}, // two signs
	"_c_" + uuid + "-lock-+000000001":                      {},
	"_c_" + uuid + "-lock-00000000x1":                      {},
	"_c_" + uuid + "-lock-0000000001 ":                     {},
	"_c_" + uuid + "-lock-０００００００００１":                      {}, // digits of another script
	"_c_" + uuid + "-LOCK-0000000001":                      {},
	"_c_" + uuid + "-__LOCK__0000000001":                   {},
	"0000000001":                                           {},
	"-000000001":                                           {},
	"-0000000001":                                          {},
	"":                                                     {},
	"0":                                                    {},
	"README":                                               {},
	"\xff\xfe-lock-":                                       {},
	"locks":                                                {},
	"lock":                                                 {},
	"lock0000000001":                                       {},
	"__lock__":                                             {},
	"__lock__x":                                            {},
	"_c_" + uuid + "-lock-0000000001-old":                  {},
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

// FuzzNumber compares the parser with the rule of names: a label, and after it a number of 32 bits as a server writes it.
func FuzzNumber(f *testing.F) {
	for name := range names {
		f.Add(name)
	}
	rule := regexp.MustCompile(`(?s)^.*(lock-|__lock__|__READ__|__WRIT__|__rlock__|-lease-([0-9]+)-)(-?[0-9]{9,10})$`)
	ranked := regexp.MustCompile(`(?s)-rank-([0-9]+)(?:-([0-9]+))?-$`)
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := recipe.Parse(name)
		want := false
		// The expression leaves as much as it can to the number, so that the second "-" of "lock--000000001" is its sign.
		if m := rule.FindStringSubmatch(name); m != nil {
			n, err := strconv.ParseInt(m[3], 10, 32)
			want = err == nil && m[3] == fmt.Sprintf("%010d", n)
			if m[2] != "" {
				permits, err := strconv.ParseInt(m[2], 10, 64)
				want = want && err == nil && permits >= 1 && permits <= recipe.MaxPermits
			}
			if want && ok {
				require.Equal(t, int32(n), got.Number, "%q", name)
				rank, since := 0, 0
				if r := ranked.FindStringSubmatch(strings.TrimSuffix(name, m[1]+m[3])); r != nil && m[2] == "" {
					first, err := strconv.ParseInt(r[1], 10, 32)
					second, err2 := strconv.ParseInt("0"+r[2], 10, 32)
					if err == nil && err2 == nil {
						rank, since = int(first), int(second)
					}
				}
				require.Equal(t, []int{rank, since}, []int{got.Rank, got.Since}, "%q", name)
			}
		}
		require.Equal(t, want, ok, "%q", name)
		if ok {
			require.True(t, strings.HasSuffix(name, fmt.Sprintf("%010d", got.Number)), "%q", name)
		}
	})
}

// number is the part of Parse that these tests use.
func number(name string) (int32, bool) {
	n, ok := recipe.Parse(name)
	return n.Number, ok
}
