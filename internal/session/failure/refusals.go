package failure

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/internal/wire"
)

// Of returns the error for a server's code.
func Of(code int32) error {
	if err, ok := codes[code]; ok {
		return err
	}
	return fmt.Errorf("server's error code %d", code)
}

// codes are those of ZooKeeper's KeeperException.
var codes = map[int32]error{
	-1: errors.New("the server reports a system error"),
	wire.CodeInconsistent: errors.New(
		"rolled back because of another operation of the transaction"),
	-3:                      errors.New("the server reports an inconsistency of its data"),
	wire.CodeConnectionLoss: errors.New("the server has lost its connection"),
	-5:                      errors.New("the server can't read the request"),
	wire.CodeUnimplemented:  errors.New("operation not implemented by this server"),
	wire.CodeServerTimeout:  errors.New("the server's time for the operation was over"),
	wire.CodeBadArguments:   zk.ErrBadArguments,
	-12:                     errors.New("the server does not know the session"),
	wire.CodeAPIError:       zk.ErrAPIError,
	wire.CodeNoNode:         zk.ErrNoNode,
	wire.CodeNoAuth:         zk.ErrNoAuth,
	-103:                    zk.ErrBadVersion,
	-108:                    zk.ErrNoChildrenForEphemerals,
	-110:                    zk.ErrNodeExists,
	-111:                    zk.ErrNotEmpty,
	wire.CodeSessionExpired: ErrExpired,
	-114:                    zk.ErrInvalidACL,
	wire.CodeAuthFailed:     ErrAuth,
	wire.CodeSessionMoved:   zk.ErrSessionMoved,
	-119:                    errors.New("server is read-only"),
	-120: errors.New(
		"no ephemeral znode on a local session: the servers' localSessionsUpgradingEnabled has to be true"),
	wire.CodeRequestTimeout: errors.New("the request took too long"),
	wire.CodeAuthRequired:   ErrAuth,
	-125:                    errors.New("quota exceeded"),
	wire.CodeThrottled: errors.New(
		"the server has too much to do and has dropped the request"),
}
