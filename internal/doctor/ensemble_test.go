package doctor_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/doctor"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
)

func TestMain(m *testing.M) { os.Exit(ensemble.Run(m)) }

func TestRealServersTellWhatTheyAre(t *testing.T) {
	e := ensemble.Shared(t, 3)
	r := examine(t, e.Connect(),
		doctor.Config{Session: session.Config{TickTime: 500 * time.Millisecond}})
	require.Len(t, r.Servers, 3)
	modes := map[string]int{}
	for i, v := range r.Servers {
		version, err := e.Nodes[i].Version()
		require.NoError(t, err)
		assert.Equal(t, version, v.Version)
		assert.Empty(t, v.Unknown)
		assert.True(t, v.Packet)
		assert.Equal(t, []time.Duration{500 * time.Millisecond, time.Second, 10 * time.Second},
			[]time.Duration{v.Tick, v.MinTimeout, v.MaxTimeout})
		require.NotNil(t, v.Offset)
		assert.LessOrEqual(t, v.Offset.Ahead.Abs(), v.Offset.Error+10*time.Millisecond,
			"the same machine")
		modes[v.Mode]++
	}
	assert.Equal(t, map[string]int{"leader": 1, "follower": 2}, modes)
	require.NotNil(t, r.Offset)
	assert.Equal(t, doctor.Access{
		Path:   "/",
		At:     "/",
		Read:   doctor.Granted,
		Create: doctor.Granted,
		Delete: doctor.Granted,
		Write:  doctor.Granted,
		Admin:  doctor.Granted,
	}, r.Access)
	notFound(t, r, doctor.Danger)
}

// With four-letter words closed, the limits are told by what is granted, and the rest by the admin
// port if it is open.
func TestRealServersWithClosedFourLetterWordsTellByWhatTheyGrant(t *testing.T) {
	e := ensemble.Start(t, 1,
		ensemble.WithConfig("4lw.commands.whitelist=srvr", "maxSessionTimeout=60000"),
		ensemble.WithJVM("-Djute.maxbuffer=65536"))
	r := examine(t, e.Connect(), doctor.Config{})
	v := r.Servers[0]
	assert.Equal(t, []time.Duration{time.Second, time.Minute},
		[]time.Duration{v.MinTimeout, v.MaxTimeout})
	assert.Zero(t, v.Tick)
	assert.False(t, v.Packet)
	found(t, r, doctor.Danger, "takes no request of 1048575 bytes")
	found(t, r, doctor.Note,
		"can't tell tick: four-letter word conf is not in the server's 4lw.commands.whitelist")
	assert.NotContains(t, strings.Join(v.Unknown, " "), "version")
}

func TestARealServerThatIsReadOnlyIsReportedAsThat(t *testing.T) {
	e := ensemble.Start(t, 3, ensemble.WithJVM("-Dreadonlymode.enabled=true"))
	e.NeedControl(t)
	alone := e.Followers(t)[0]
	e.Isolate(alone)
	ensemble.Until(t, time.Minute, "a read-only server", func() error {
		if mode := alone.Mode(); mode != "read-only" {
			return fmt.Errorf("it is %q", mode)
		}
		return nil
	})
	r := examine(t, alone.Addr(), doctor.Config{})
	assert.Equal(t, "read-only", r.Servers[0].Mode)
	found(t, r, doctor.Warning, "the server is read-only: it has no quorum")
}
