package ensemble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// Three servers reach each other through proxies only, one for every ordered pair and each of the
// two kinds of traffic between them: server i's configuration names, for its peer j, the proxies
// from i to j. So any member can be separated from the others while clients still reach it.
//
// One detour remains: an election connection begins with its opener's own election address, and a
// server with a higher number closes a connection from a lower one and dials that address, which is
// not a proxy's. So the proxies for election traffic rewrite it (electionOpening).

// A proxy accepts a connection before it knows whether the target does. A new leader is often
// dialled some milliseconds before it listens: a server whose dial is refused retries at once, but
// one whose connection breaks returns to voting, and that leader waits for a quorum until initLimit
// has passed. So these proxies retry themselves.
const quorumPatience = time.Second

// peer is the address at which a server listens for the other servers.
type peer struct {
	id               int
	quorum, election *claim
}

// quorumLink is one direction of dialling between two servers.
type quorumLink struct {
	from, to int
	election bool
	proxy    *Proxy
}

// wire reserves the servers' ports and puts the proxies between them, unless they are to be direct.
func (e *Ensemble) wire(nodes int, direct bool) ([]peer, error) {
	var peers []peer
	for id := 1; id <= nodes; id++ {
		quorum, err := e.claim()
		if err != nil {
			return nil, err
		}
		election, err := e.claim()
		if err != nil {
			return nil, err
		}
		peers = append(peers, peer{id: id, quorum: quorum, election: election})
	}
	if direct {
		return peers, nil
	}
	for _, from := range peers {
		for _, to := range peers {
			if from.id == to.id {
				continue
			}
			if err := e.link(from.id, to.id, false, to.quorum); err != nil {
				return nil, err
			}
			if err := e.link(from.id, to.id, true, to.election); err != nil {
				return nil, err
			}
		}
	}
	for _, l := range e.links {
		if l.election {
			back := e.proxyBetween(l.to, l.from, true).Addr()
			l.proxy.setOpening(func(r io.Reader) ([]byte, error) {
				return electionOpening(r, back)
			})
		}
	}
	return peers, nil
}

func (e *Ensemble) link(from, to int, election bool, target *claim) error {
	p, err := openProxy(target.addr(), quorumPatience)
	if err == nil {
		e.links = append(e.links, quorumLink{from: from, to: to, election: election, proxy: p})
	}
	return err
}

func (e *Ensemble) proxyBetween(from, to int, election bool) *Proxy {
	i := slices.IndexFunc(e.links, func(l quorumLink) bool {
		return l.from == from && l.to == to && l.election == election
	})
	return e.links[i].proxy
}

// serverLines are the server.N lines of one server's configuration: itself as it listens, its peers
// as it dials them.
func (e *Ensemble) serverLines(id int, peers []peer, observer bool) []string {
	var lines []string
	for _, p := range peers {
		quorum, election := p.quorum.port, p.election.port
		if p.id != id && len(e.links) > 0 {
			quorum = e.proxyBetween(id, p.id, false).port()
			election = e.proxyBetween(id, p.id, true).port()
		}
		line := fmt.Sprintf("server.%d=%s:%s:%s", p.id, loopback, quorum, election)
		if last := p.id == len(peers); observer && last {
			line += ":observer"
			if p.id == id {
				lines = append(lines, "peerType=observer")
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// electionOpening reads the first message of an election connection and returns it with another
// address of the opener: protocol version (8 bytes, negative), server number (8), length (4),
// "host:port".
func electionOpening(r io.Reader, addr string) ([]byte, error) {
	const fixed, longest = 20, 2048
	head := make([]byte, fixed)
	if n, err := io.ReadFull(r, head); err != nil {
		return head[:n], err
	}
	size := int32(binary.BigEndian.Uint32(head[16:]))
	if int64(binary.BigEndian.Uint64(head)) >= 0 || size < 1 || size > longest {
		return head, nil // an unknown form: pass it unchanged
	}
	old := make([]byte, size)
	if n, err := io.ReadFull(r, old); err != nil {
		return append(head, old[:n]...), err
	}
	var out bytes.Buffer
	out.Write(head[:16])
	out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(addr))))
	out.WriteString(addr)
	return out.Bytes(), nil
}

// Isolate separates a node from the other servers, as a pulled cable would: after its return no
// byte and no FIN passes between them, in either direction. Clients still reach the node; it
// answers reads and pings until it notices, after about syncLimit ticks. Heal ends it. It panics
// unless the ensemble is three servers started here, which NeedControl ensures.
func (e *Ensemble) Isolate(n *Node) {
	if len(e.links) == 0 {
		panic("ensemble: Isolate needs three servers started here: call NeedControl first")
	}
	n.setIsolated(true)
	for _, l := range e.links {
		if l.from == n.ID || l.to == n.ID {
			l.proxy.Freeze()
		}
	}
}

// Heal ends every isolation, Mute, Deafen and Slow and returns at once; Ensemble.WaitServing waits
// until the ensemble is whole again. Held connections are cut, so that nothing sent before the
// isolation arrives after it.
func (e *Ensemble) Heal() {
	for _, n := range e.Nodes {
		n.setIsolated(false)
	}
	for _, l := range e.links {
		l.proxy.Delay(0, 0)
		if l.proxy.gated() {
			l.proxy.Cut()
			l.proxy.Thaw()
		}
	}
}

func (p *Proxy) port() string {
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		panic(err) // the address came from claimPort
	}
	return port
}
