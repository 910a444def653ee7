package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/wire"
)

// The verdict of a transaction may stand inside it.
func TestTheVerdictOfATransactionIsThatOfItsOperations(t *testing.T) {
	for name, c := range map[string]struct {
		op, header int32
		codes      []int32
		want       int32
	}{
		"all well":                           {14, 0, []int32{0, 0}, 0},
		"refused":                            {14, 0, []int32{0, -101, -2}, -101},
		"expired":                            {14, 0, []int32{-112, -2}, -112},
		"expired behind another refusal":     {14, 0, []int32{-101, -112, -2}, -112},
		"moved, the last of three":           {14, 0, []int32{0, 0, -118}, -118},
		"no multi":                           {1, 0, []int32{-112}, 0},
		"the header refuses":                 {14, -102, []int32{0}, -102},
		"a consequence of nothing":           {14, 0, []int32{-2}, -2},
		"the header says that it is expired": {14, -112, nil, -112},
	} {
		require.Equal(t, c.want, wire.Verdict(c.op, c.header, string(results(c.codes))), name)
	}
}

// results is the body of a reply to a multi whose operations have these codes.
func results(codes []int32) (body []byte) {
	for _, code := range codes {
		if code == wire.CodeOK {
			body = wire.AppendInt(wire.AppendBool(wire.AppendInt(body, wire.OpCheck), false), code)
			continue
		}
		body = append(wire.AppendInt(wire.AppendBool(wire.AppendInt(body, wire.OpError), false),
			code), wire.AppendInt(nil, code)...)
	}
	return wire.AppendMultiHeader(body, wire.OpError, true)
}
