package zklock_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A server in trouble answers a create with a code of no refusal, and has carried it out. Nobody may stand in line for
// a call that has failed.
func TestACreateThatIsAnsweredWithAnUnknownCodeLeavesNothingBehind(t *testing.T) {
	trouble := func(reply []byte) []byte {
		return binary.BigEndian.AppendUint32(reply[:12], 0xffffffff) // −1, "system error"
	}
	for name, c := range map[string]struct {
		op   zktest.Op
		lock func(c *locktest.Client, dirs []string) func(context.Context) (*zklock.Hold, error)
	}{
		"one path": {zktest.OpCreate, func(c *locktest.Client, dirs []string) func(context.Context) (*zklock.Hold, error) {
			return c.Mutex(dirs[0]).Lock
		}},
		"several paths": {zktest.OpMulti, func(c *locktest.Client, dirs []string) func(context.Context) (*zklock.Hold, error) {
			return c.MultiLock(dirs).Lock
		}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, client := dirs(s, 3), s.Client()
				s.Server.Inject(zktest.Garble(trouble).Op(c.op).Once())
				_, err := c.lock(client, dirs)(s.Context())
				require.Error(s, err)
				emptyAll(s, 5*time.Second, dirs)
			})
		})
	}
}
