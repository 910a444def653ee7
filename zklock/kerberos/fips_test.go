package kerberos_test

import (
	"testing"

	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
)

// Scenario 95.
func TestInFIPSModeKeysOfSHA2WorkAndOthersAreNamed(t *testing.T) {
	if !locktest.InFIPSMode(t) {
		return
	}
	a := newAcceptor(t)
	for kind, size := range map[int32]int{
		etypeID.AES128_CTS_HMAC_SHA256_128: 16,
		etypeID.AES256_CTS_HMAC_SHA384_192: 32,
	} {
		a.key = newKey(t, kind, size)
		require.NoError(t, a.finish(t))
	}
	for kind, size := range map[int32]int{
		etypeID.AES256_CTS_HMAC_SHA1_96: 32,
		etypeID.RC4_HMAC:                16,
		etypeID.DES3_CBC_SHA1_KD:        24,
	} {
		a.key = newKey(t, kind, size)
		_, _, err := a.begin().Step(t.Context(), nil)
		require.ErrorContains(t, err, "GODEBUG=fips140=only")
		require.ErrorContains(t, err, "aes256-cts-hmac-sha384-192")
	}
}
