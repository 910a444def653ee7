package wire_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/wire"
)

// A hold keeps the path of its znode for long, and a server may send it in a long frame.
func TestATextDoesNotKeepItsFrame(t *testing.T) {
	frame := string(wire.AppendString(nil, "/made")) + string(make([]byte, 1<<10))
	inFrame := func(text string) bool {
		begin := uintptr(unsafe.Pointer(unsafe.StringData(frame)))
		at := uintptr(unsafe.Pointer(unsafe.StringData(text)))
		return begin <= at && at < begin+uintptr(len(frame))
	}

	kept, shared := wire.Decoder{B: frame}, wire.Decoder{B: frame}
	text := kept.Text()
	require.Equal(t, "/made", text)
	require.False(t, inFrame(text))
	require.True(t, inFrame(shared.SharedText()))
}

func TestANullByteStringIsNil(t *testing.T) {
	null := wire.Decoder{B: string(wire.AppendBytes(nil, nil))}
	require.Nil(t, null.Bytes())
	require.NoError(t, null.Err)

	empty := wire.Decoder{B: string(wire.AppendBytes(nil, []byte{}))}
	require.NotNil(t, empty.Bytes())
	require.NoError(t, empty.Err)

	short := wire.Decoder{B: string(wire.AppendInt(nil, 1))}
	require.Nil(t, short.Bytes())
	require.ErrorIs(t, short.Err, wire.ErrShort)
}
