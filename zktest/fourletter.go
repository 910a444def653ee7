package zktest

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The four-letter words are the commands that scripts and monitors send with netcat. Their forms
// are those of 3.8, line by line, because tools parse them; what has no meaning here (latencies,
// queues) is zero.

// fourLetterWord answers an administrator's command. It returns false if w, the first four bytes of
// a connection, is none. A command cannot be mistaken for the length of a handshake, which would be
// over a gigabyte.
func (c *conn) fourLetterWord(w string) bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	text, ok := c.textLocked(w)
	if ok {
		c.out.put(newParcel([]byte(text)))
	}
	return ok
}

// textLocked carries out a command and returns its output. ok is false if w is none.
func (c *conn) textLocked(w string) (text string, ok bool) {
	switch w {
	case "ruok":
		text = "imok"
	case "isro":
		text = "rw"
	case "conf":
		text = c.member.conf()
	case "envi":
		text = c.s.environment()
	case "dirs":
		text = "datadir_size: 0\nlogdir_size: 0\n"
	case "srst":
		c.s.received, c.s.sent = 0, 0
		text = "Server stats reset.\n"
	case "crst":
		for o := range c.member.conns {
			o.received, o.sent = 0, 0
		}
		text = "Connection stats reset.\n"
	case "gtmk", "stmk": // trace masks: nothing is traced, whatever is asked for
		text = "306"
	case "srvr":
		text = c.member.srvrLocked("")
	case "stat":
		text = c.member.statLocked()
	case "cons":
		text = c.member.consLocked()
	case "mntr":
		text = c.member.mntrLocked()
	case "wchs":
		text = c.member.wchsLocked()
	case "wchp":
		text = c.member.wchpLocked() + "\n"
	case "wchc":
		text = c.member.wchcLocked() + "\n"
	case "dump":
		text = c.member.dumpLocked()
	default:
		return "", false
	}
	return text, true
}

// release has the form of a real one; the suffix says that zktest answers.
func (s *Server) release() string {
	return s.opt.dialect.release + "-zktest, built on 2024-01-01 00:00 UTC"
}

// environment is the text of envi, without Java's part: clients read the version there.
func (s *Server) environment() string {
	return fmt.Sprintf(
		"Environment:\nzookeeper.version=%s\nhost.name=localhost\nos.name=%s\nos.arch=%s\n",
		s.release(), runtime.GOOS, runtime.GOARCH)
}

// modeLocked is standalone until there is a follower: a single server is no ensemble.
func (m *Member) modeLocked() string {
	switch {
	case len(m.s.members) == 1:
		return "standalone"
	case m == m.s.leader:
		return "leader"
	}
	return "follower"
}

// srvrLocked is the text of srvr, and with a list of clients in the middle that of stat.
func (m *Member) srvrLocked(clients string) string {
	return fmt.Sprintf(
		"Zookeeper version: %s\n%sLatency min/avg/max: 0/0.0/0\nReceived: %d\nSent: %d\n"+
			"Connections: %d\nOutstanding: 0\nZxid: 0x%x\nMode: %s\nNode count: %d\n",
		m.s.release(), clients, m.s.received, m.s.sent,
		len(m.conns), m.tree.zxid, m.modeLocked(), len(m.tree.nodes))
}

// statLocked is the text of stat: that of srvr, with a line for each client.
func (m *Member) statLocked() string {
	var b strings.Builder
	b.WriteString("Clients:\n")
	for _, o := range inOrder(m.conns) {
		b.WriteString(o.briefLocked() + ")\n")
	}
	b.WriteString("\n")
	return m.srvrLocked(b.String())
}

// consLocked is the text of cons: a longer line for each client.
func (m *Member) consLocked() string {
	var b strings.Builder
	for _, o := range inOrder(m.conns) {
		b.WriteString(o.briefLocked() + o.detailLocked() + ")\n")
	}
	return b.String() + "\n"
}

// conf is the configuration; test code asks it for the tick.
func (m *Member) conf() string {
	_, port, _ := strings.Cut(m.addr, ":")
	o := m.s.opt
	return fmt.Sprintf(
		"clientPort=%s\ntickTime=%d\nmaxClientCnxns=0\nminSessionTimeout=%d\nmaxSessionTimeout=%d\n"+
			"serverId=%d\n", port, o.tick.Milliseconds(),
		o.minTimeout.Milliseconds(), o.maxTimeout.Milliseconds(), m.number)
}

// briefLocked is a connection's line in stat; the number in brackets says whether the server would
// read from it.
func (c *conn) briefLocked() string {
	interest := 1
	if c.session == 0 {
		interest = 0
	}
	return fmt.Sprintf(" /%s[%d](queued=%d,recved=%d,sent=%d", c.nc.RemoteAddr(), interest,
		c.out.len(),
		c.received, c.sent)
}

// detailLocked is what cons adds to that. Only connections with a session have it.
func (c *conn) detailLocked() string {
	if c.session == 0 {
		return ""
	}
	xid := ""
	if c.lastXid >= 0 {
		xid = fmt.Sprintf(",lcxid=0x%x", c.lastXid)
	}
	return fmt.Sprintf(
		",sid=0x%x,lop=%s,est=%d,to=%d%s,lzxid=0x%x,lresp=%d,llat=0,minlat=0,avglat=0,maxlat=0",
		uint64(c.session), c.lastNameLocked(), c.born.UnixMilli(), c.timeout.Milliseconds(), xid,
		uint64(c.lastZxid), c.lastAt.Sub(c.s.born).Milliseconds())
}

// lastNameLocked is the server's name for the connection's last operation.
func (c *conn) lastNameLocked() string {
	if c.lastOp == opError {
		return "NA"
	}
	return operationOf(c.lastOp).last
}

// mntrLocked is one line per metric, name and value separated by a tab.
func (m *Member) mntrLocked() string {
	// Computed on demand: it is rarely asked for, and a maintained counter can be wrong.
	size := 0
	for p, n := range m.tree.nodes {
		size += len(p) + len(n.data)
	}
	ephemerals := 0
	for _, ps := range m.tree.ephemerals {
		ephemerals += len(ps)
	}
	var b strings.Builder
	line := func(key string, v any) { fmt.Fprintf(&b, "zk_%s\t%v\n", key, v) }
	line("version", m.s.release())
	line("server_state", m.modeLocked())
	line("ephemerals_count", ephemerals)
	line("num_alive_connections", len(m.conns))
	line("avg_latency", "0.0")
	line("outstanding_requests", 0)
	line("znode_count", len(m.tree.nodes))
	line("global_sessions", len(m.s.sessions))
	line("packets_sent", m.s.sent)
	line("packets_received", m.s.received)
	line("watch_count", m.dataWatches.size()+m.childWatches.size())
	line("min_latency", 0)
	line("max_latency", 0)
	line("approximate_data_size", size)
	line("local_sessions", 0)
	line("uptime", time.Since(m.s.born).Milliseconds())
	return b.String()
}

// wchsLocked, wchpLocked and wchcLocked show the data watches only, as the real server's do.
func (m *Member) wchsLocked() string {
	w := m.dataWatches
	return fmt.Sprintf("%d connections watching %d paths\nTotal watches:%d\n", len(w.byConn),
		len(w.byPath), w.size())
}

func (m *Member) wchpLocked() string {
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(m.dataWatches.byPath)) {
		fmt.Fprintln(&b, p)
		for c := range m.dataWatches.byPath[p] {
			fmt.Fprintf(&b, "\t0x%x\n", uint64(c.session))
		}
	}
	return b.String()
}

func (m *Member) wchcLocked() string {
	var b strings.Builder
	for c, ps := range m.dataWatches.byConn {
		fmt.Fprintf(&b, "0x%x\n", uint64(c.session))
		for _, p := range slices.Sorted(maps.Keys(ps)) {
			fmt.Fprintf(&b, "\t%s\n", p)
		}
	}
	return b.String()
}

// dumpLocked shows the sessions by their instant of expiry, which is the best available view of the
// tick buckets.
func (m *Member) dumpLocked() string {
	const layout = "Mon Jan 02 15:04:05 MST 2006"
	buckets := map[time.Duration][]int64{}
	for _, ss := range m.s.sortedSessionsLocked() {
		buckets[ss.expires] = append(buckets[ss.expires], ss.id)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "SessionTracker dump:\nSession Sets (%d)/(%d):\n", len(buckets),
		len(m.s.sessions))
	for _, at := range slices.Sorted(maps.Keys(buckets)) {
		fmt.Fprintf(&b, "%d expire at %s:\n", len(buckets[at]), m.s.born.Add(at).Format(layout))
		for _, id := range buckets[at] {
			fmt.Fprintf(&b, "\t0x%x\n", uint64(id))
		}
	}
	fmt.Fprintf(&b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n",
		len(m.tree.ephemerals))
	for _, id := range slices.Sorted(maps.Keys(m.tree.ephemerals)) {
		fmt.Fprintf(&b, "0x%x:\n", uint64(id))
		for _, p := range m.tree.owned(id) {
			fmt.Fprintf(&b, "\t%s\n", p)
		}
	}
	fmt.Fprintf(&b, "Connections dump:\nConnections Sets (1)/(%d):\n%d expire at %s:\n",
		len(m.conns), len(m.conns),
		time.Now().Format(layout))
	for _, c := range inOrder(m.conns) {
		fmt.Fprintf(&b, "\tip: /%s sessionId: 0x%x\n", c.nc.RemoteAddr(), uint64(c.session))
	}
	return b.String()
}
