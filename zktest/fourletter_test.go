package zktest_test

import (
	"io"
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

// overTCP returns a dialer of a server's address.
func overTCP(s *zktest.Server) dialer {
	return func(string, string, time.Duration) (net.Conn, error) {
		return net.Dial("tcp", s.Addr())
	}
}

// fourLetters returns the answer to a four-letter word.
func fourLetters(t *testing.T, addr, word string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, time.Second)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	_, err = c.Write([]byte(word))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(b)
}

func TestFourLetterWordsHaveTheFormsThatToolsParse(t *testing.T) {
	s := zktest.Run(t)
	c := scriptOn(t, overTCP(s))
	c.ok(t, "a create /x", "a create /e m=e", "a get /x w", "a ls / w")
	for word, form := range map[string]string{
		"ruok": `^imok$`,
		"isro": `^rw$`,
		"conf": `^clientPort=\d+\ntickTime=2000\nmaxClientCnxns=0\nminSessionTimeout=4000\nmaxSessionTimeout=40000\nserverId=0\n$`,
		"srvr": `^Zookeeper version: 3\.9\.\d.*, built on .*\nLatency min/avg/max: 0/0.0/0\nReceived: \d+\nSent: \d+\n` +
			`Connections: 2\nOutstanding: 0\nZxid: 0x3\nMode: standalone\nNode count: 7\n$`,
		"stat": `\nClients:\n /127\.0\.0\.1:\d+\[1\]\(queued=0,recved=5,sent=5\)\n /127.*\[0\].*\n\nLatency`,
		"cons": `^ /127\.0\.0\.1:\d+\[1\]\(queued=0,recved=5,sent=5,sid=0x[0-9a-f]+,lop=GETC,est=\d+,to=30000,lcxid=0x4,` +
			`lzxid=0x3,lresp=\d+,llat=0,minlat=0,avglat=0,maxlat=0\)\n`,
		"mntr": `(?s)^zk_version\t.*zk_server_state\tstandalone\n.*zk_ephemerals_count\t1\n.*zk_znode_count\t7\n.*zk_watch_count\t2\n`,
		"wchs": `^1 connections watching 1 paths\nTotal watches:1\n$`,
		"wchp": `^/x\n\t0x[0-9a-f]+\n\n$`,
		"wchc": `^0x[0-9a-f]+\n\t/x\n\n$`,
		"envi": `^Environment:\nzookeeper\.version=3\.\d\.\d-.*\nhost\.name=.*\n`,
		"dirs": `^datadir_size: 0\nlogdir_size: 0\n$`,
		"gtmk": `^306$`,
		"dump": `^SessionTracker dump:\nSession Sets \(1\)/\(1\):\n1 expire at .*:\n\t0x[0-9a-f]+\nephemeral nodes dump:\n` +
			`Sessions with Ephemerals \(1\):\n0x[0-9a-f]+:\n\t/e\nConnections dump:\n`,
	} {
		assert.Regexp(t, regexp.MustCompile(form), fourLetters(t, s.Addr(), word), word)
	}
}

func TestResetCountsBeginAtZero(t *testing.T) {
	s := zktest.Run(t)
	c := scriptOn(t, overTCP(s))
	c.ok(t, "a create /x", "a get /x")
	assert.Regexp(t, `Received: [3-9]\n`, fourLetters(t, s.Addr(), "srvr"))
	assert.Equal(t, "Server stats reset.\n", fourLetters(t, s.Addr(), "srst"))
	assert.Regexp(t, `Received: [01]\n`, fourLetters(t, s.Addr(), "srvr"))
	assert.Contains(t, fourLetters(t, s.Addr(), "cons"), "recved=3,")
	assert.Equal(t, "Connection stats reset.\n", fourLetters(t, s.Addr(), "crst"))
	assert.Contains(t, fourLetters(t, s.Addr(), "cons"), "recved=0,")
}
