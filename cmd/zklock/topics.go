package main

import "github.com/spf13/cobra"

// topicTexts are the help pages that are not commands.
var topicTexts = []struct{ name, short, text string }{
	{"exit-codes", "What the exit codes mean", exitTable + `

run, elect and hold use all of them; the other commands 0, 1, 64, 69, 77 and 128+N.

` + exitRules + `

The command's own code may be 64 to 77, too. With a code of zklock's own, one of its lines on standard error begins with
"zklock: ", except with 75 and --quiet, and with 128+N. A script that has to be sure lets the command note its code:
zklock run /l -- sh -c './rebuild.sh; echo $? >status'

elect --again stands for election again after a 70 of zklock's own, and after a 69 unless that is the first attempt, but not
after a SIGTERM or SIGINT. With every other code it ends, and with every code of the command, also 69 and 70.

On a terminal, when Ctrl-C has ended the command, zklock ends by SIGINT itself: a shell shows 130 all the same, and a
script around zklock is interrupted too.`},
	{"environment", "Variables that zklock reads, and that it sets for a command", `Read if the flag is not given:
  ` + envZK + `                 --zk: the ensemble, "zk1:2181,zk2:2181,zk3:2181", with a /chroot after it if there is one
  ` + envAuth + `               --auth: scheme:credential, one per line
  ` + envAuthFile + `          --auth-file
  ` + envTimeout + `    --session-timeout, for example 30s
  ` + envRoot + `               PATH of ls: the directory of your locks
  ZKLOCK_CONNECT_TIMEOUT, ZKLOCK_TICK, ZKLOCK_CREATE_CHROOT, ZKLOCK_TLS (true), ZKLOCK_TLS_CA, ZKLOCK_TLS_CERT, ZKLOCK_TLS_KEY,
  ZKLOCK_TLS_SERVER_NAME: --connect-timeout and so on

zklock passes its own flags on to the command of run and elect in these variables, except ` + envAuth + `: a zklock in it uses
the same ensemble. The command never gets --auth or ` + envAuth + `: one that connects to the ensemble itself needs credentials
of its own, or the right to read the file that ` + envAuthFile + ` names. Nor does it get LISTEN_PID, WATCHDOG_PID, WATCHDOG_USEC
and NOTIFY_SOCKET, by which systemd means zklock: a command that needs Type=notify or WatchdogSec= does not work under zklock.

Set for the command of run and elect, whatever it would have inherited:
  ZKLOCK_PATH       the lock's path
  ZKLOCK_NODE       the znode that holds it
  ZKLOCK_TOKEN      the fencing token, a positive number below 2^63 that grows from holder to holder and is never reused:
                    let what you write to refuse a token that is lower than the last
  ZKLOCK_SESSION    the ZooKeeper session, as 0x…
  ` + envHeld + `       the sessions and znodes of this lock and of those that it is run under, one per line: a run, elect or
                    hold in it that would wait for one of these, and so for itself, ends with 64 at once

The output of "zklock queue --json $ZKLOCK_PATH" shows a command the state of its lock; its exit code, whether the ensemble
has answered.`},
	{"paths", "What the path of a lock may be", `A path begins with a slash: /locks/rebuild-index. Its parts are separated by slashes, and none of them is empty, "."
or "..". It does not end with a slash, is not the root, and not below /zookeeper. It is UTF-8 without control characters,
and at most 4,096 bytes long, less 80 for the contenders' names. Missing znodes of it are created; --container lets the
ensemble remove the lock's znode when it is no longer used.

One path is one kind of lock: a plain one (run, elect), a read/write lock (run --shared, run --exclusive), or one with
permits (run -n N --of SIZE). Another kind on the same path is refused, with 64,
while the first is in use.

A chroot after the servers, --zk zk1:2181,zk2:2181/team-a, is prefixed to every path. One that does not exist is an
error, 64; with --create-chroot run, elect and hold create it.`},
	{"safety", "When a command is stopped, and what is not covered", `zklock holds the lock as long as the ensemble hears from it in time. From the leader's confirmations and its own clock it
computes the instant until which no other client can have the lock, allowing for clock rates that differ by two per cent.
For a session timeout T (--session-timeout, 10 s; the servers may grant another):

  - only --grace and T/11 of the lease are left, which never happens while the ensemble answers: the command's process group
    gets SIGTERM. (The grace is shorter than requested with a T of less than six ticks, see --tick, and when a server lets
    zklock reconnect and then sends nothing, which leaves two ticks);
  - only T/11 is left: it gets SIGKILL. The rest is time for the kernel, and for delays of zklock;
  - the connection returns in between: the SIGKILL is deferred; the command has got its SIGTERM all the same;
  - the znode was removed by force, or the session was ended: SIGKILL at once. The lock is lost already then;
  - --max-hold has passed: SIGTERM, and SIGKILL after the grace.

In all these cases zklock ends with 70. --on-loss term sends SIGTERM only, and the command may go on when another client has
the lock; --on-loss ignore only prints a message, and passes the command's exit code on; but with --once-per or
--every it is 70 when the run could not be recorded. The lock is released when no process
of the group is left: processes that the command leaves in the background keep the lock.

--tick is the ensemble's tickTime. Two ticks, but at most half of T, are subtracted from the lease: a server may be that late
in reporting to its leader. Without --tick it is half of the least session timeout that a server grants, which is right unless
minSessionTimeout is set in zoo.cfg. If that is below two ticks, give --tick: with a value too short a command may still run
when another client has the lock. With a value too long leases are short: for a T of 4 s on an ensemble with ticks of 500 ms,
a change of the ensemble's leader ends every command with --tick 2s, and none with 500ms.

The command is started by a second process of zklock, the guard. If zklock is killed, the guard kills the command's group.
On Linux it then waits until every process has ended that the command has started, whatever group or session it is in, and
closes zklock's session: the lock is free at once, and not only after T. While such a process lives, and if the guard is
killed too, as with all processes of a container whose process 1 is killed, the lock is free after T. If zklock is stopped
(SIGSTOP, or Ctrl-Z, which stops the command as well), the guard kills the group at the end of the lease. With --on-loss
term or ignore, the group gets SIGTERM when zklock dies, and there is no deadline. If the guard is killed, the command is
ended in the same way while the lock is still held, since without a guard it could outlive zklock.

Not covered:
  - processes that leave the group (setsid, daemons, timeout without --foreground, jobs of set -m) or run with other rights
    (sudo): zklock can't end them;
  - all of the group except its first process, when zklock and its guard are killed at the same moment; on systems other than
    Linux that process too;
  - the whole group, when zklock and its guard are both stopped;
  - a process that the command has put into another container's process namespace (nsenter): the guard does not know it;
  - what the command has asked other programs to do, such as a statement in a database, a container or a unit of systemd;
  - a machine that is paused (a virtual machine, for example) and resumes when another client has the lock: a process may run
    for a moment before it is killed. Its earlier writes, and those still in the network, can't be undone.
For these, pass ZKLOCK_TOKEN on to what you write to.`},
	{"terminal", "How a command uses the terminal", `A command in its own process group reads from the terminal as it would without zklock: it has the terminal from the start
when standard input and output are the terminal, and otherwise, in a pipeline, from its first access. It gets Ctrl-C.
Ctrl-Z stops both, and the lease runs out: after fg or bg the command continues if zklock still holds the lock, and is killed
if not.

While zklock waits with standard error on a terminal, one line there shows the place in line and the
contender ahead, or that no server has answered yet; it is removed when the wait ends. --quiet turns
it off.`},
	{"interop", "Locks of other clients on the same path", `zklock's plain lock is Apache Curator's InterProcessMutex, go-zookeeper's zk.Lock and this library's Mutex: they exclude
each other on one path. --shared and --exclusive are Curator's InterProcessReadWriteLock and this library's RWMutex; -n and
--of its Semaphore; elect its Election. Kazoo's Lock joins with a subclass that sets _NODE_NAME = "-lock-" and
_EXCLUDE_NAMES = ["-lock-"].

Other clients know no lease: their holders may go on after their session has ended.`},
	{"json", "What --json writes", `ls writes an array of locks, queue one lock:
  {"path": "/locks/a", "kind": "mutex", "holding": 1, "waiting": 1, "line": [
    {"position": 1, "holds": true, "kind": "mutex", "owner": "rebuild.sh", "host": "host7", "pid": 4711,
     "since": "2006-01-02T15:04:05.123Z", "session": "0x100003e8582000f", "token": 4294967321,
     "node": "/locks/a/_c_…-lock-0000000003", "data": "am9iIDQy", "size": 96}, …]}
kind is that of the first in line: "mutex", "election", "read", "write" or "semaphore", whose size is permits. holding and
waiting count the whole line; line has --rows of it, with each one's position. owner, host, pid, permits (of a semaphore's
contender) and data (base64) are left out when there are none; since is left out when the znode may not be read: session is
"0x0" and token 0 then, from ZooKeeper 3.8.4 on. since is by the ensemble's clock, session hexadecimal, token a number below
2^63, size the bytes of data in the znode. Of those at most 256 KB per contender and 16 MB per lock are read; without them
there is no data, and owner and host may be missing. Foreign texts are cut, owner and host to 1,000 characters, node to
5,000. Unprintable characters are written as \u….

leader writes {"path", "at", "leader", "value"}: leader is like a member of a line, null when there is no leader, with the
value in data; value is left out when it is not text. With --follow it writes a line for every change.

done writes {"path", "runs"}: each run has key, which is left out for --every, owner, host, pid, token and began.

Fields may be added; these stay.`},
}

// topics are help pages without a command: zklock help TOPIC.
func topics() []*cobra.Command {
	var all []*cobra.Command
	for _, t := range topicTexts {
		all = append(all, &cobra.Command{Use: t.name, Short: t.short, Long: t.text})
	}
	return all
}
