package zktest_test

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// sequenceSeed is where the tests begin: the last number but one.
const sequenceSeed = 2147483646

// sequenced returns one of our servers whose counter of /w has that value.
func sequenced(t *testing.T) *zktest.Server {
	t.Helper()
	ours := zktest.Run(t)
	require.NoError(t, ours.Create("/w", nil))
	require.NoError(t, ours.Create("/w/seed", nil))
	// takes a zxid; the real server gets one more znode for it
	require.NoError(t, ours.SetSequence("/w", sequenceSeed))
	return ours
}

// Scenario 49, the server's side of it: the counter stays at its end, as on a real server.
func TestSequenceWrapsAsOnARealServer(t *testing.T) {
	lines := []string{
		"a create $/s- m=s", "a create2 $/s- m=es", "a create $/s- m=s", "a create $/other",
		"a exists $",
		"a create $/t- m=s", "a multi create $/m- m=s ; create $/m- m=s ; create $/m- m=es",
		"a exists $",
		"a delete $/s-2147483647", "a create $/s- m=s", "a create $/s- m=s", "a ls2 $",
		// A directory that is deleted and created in one transaction begins at zero.
		"a create $/d", "a create $/d/s- m=s", "a delete $/d/s-0000000000", "a create $/d/s- m=s",
		"a multi delete $/d v=-1 ; create $/d", "a delete $/d/s-0000000001",
		"a multi delete $/d v=-1 ; create $/d d=x", "a exists $/d", "a create $/d/s- m=s",
		"a ls2 $/d",
	}
	real := ensemble.Start(t, 1, ensemble.WithCounter(t, "/w", sequenceSeed))
	ours := sequenced(t)
	var traces [2][]string
	for i, addr := range []string{ours.Addr(), real.Nodes[0].Addr()} {
		s := scriptAt(addr)
		s.root = "/w"
		_, err := s.session("a")
		require.NoError(t, err)
		s.do(t, "a sync /") // only for its zxid
		s.base = s.sessions["a"].seen
		for _, l := range lines {
			s.do(t, l)
		}
		require.NoError(t, s.end())
		traces[i] = s.trace[1:]
	}
	require.Equal(t, traces[1], traces[0])
}

var bursts int // so that no name is used twice

// burst sends n creates without waiting for an answer, and returns the numbers that they got.
func burst(t *testing.T, addr string, n int) []int32 {
	t.Helper()
	bursts++
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer nc.Close()
	r := &raw{name: "a", nc: nc}
	_, _, err = r.shake(30000, 0)
	require.NoError(t, err)
	for i := range n {
		o := (&out{}).i32(int32(i + 1)).i32(int32(fault.OpCreate)).str(fmt.Sprintf("/w/x%d.%d-",
			bursts, i)).str("").
			i32(1).i32(31).str("world").str("anyone").i32(3)
		require.NoError(t, r.send(o.b))
	}
	var numbers []int32
	for range n {
		b, err := r.recv()
		require.NoError(t, err)
		answer := in{b}
		answer.i32() // xid
		answer.i64() // zxid
		require.Zero(t, answer.i32())
		_, text, _ := strings.Cut(strings.TrimPrefix(answer.str(), "/w/x"), "-")
		v, err := strconv.ParseInt(text, 10, 32)
		require.NoError(t, err)
		numbers = append(numbers, int32(v))
	}
	return numbers
}

// Scenario 49, the server's side of it: creates that overlap in a real server's pipeline get
// negative numbers, until the pipeline is empty. Which ones overlap is chance there. Our server is
// told which ones did (Overlap), and then assigns the same numbers.
func TestOverlappingCreatesAreNumberedAsOnARealServer(t *testing.T) {
	real := ensemble.Start(t, 1, ensemble.WithCounter(t, "/w", sequenceSeed))
	ours := sequenced(t)
	var seen []int32
	for tries := 0; ; tries++ {
		numbers := burst(t, real.Nodes[0].Addr(), 300)
		seen = append(seen, numbers...)
		negative := 0
		for _, n := range numbers {
			if n < 0 {
				negative++
			}
		}
		t.Logf("%d of %d creates that were sent together got a negative number, the last %d",
			negative, len(numbers), numbers[len(numbers)-1])
		if negative > 0 || tries == 50 {
			require.Positive(t, negative, "creates never overlapped")
			break
		}
	}
	require.Equal(t, int32(sequenceSeed), seen[0])
	for i := 0; i < len(seen); {
		end := i + 1
		for end < len(seen) && seen[end] == seen[end-1]+1 { // wraps: so does the server
			end++
		}
		if i > 0 {
			require.Equal(t, int32(math.MaxInt32), seen[i],
				"the pipeline is empty: back to the end")
		}
		require.NoError(t, ours.Overlap("/w", end-i))
		require.Equal(t, seen[i:end], burst(t, ours.Addr(), end-i))
		i = end
	}
	require.Equal(t, []int32{math.MaxInt32, math.MaxInt32}, burst(t, ours.Addr(), 2),
		"no overlap: it sticks")
	require.ErrorIs(t, ours.Overlap("/no", 1), fault.CodeNoNode)
}
