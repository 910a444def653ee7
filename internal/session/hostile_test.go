package session_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
)

// hostileFrames are frames that a server may send instead of the reply to request xid. All are
// garbled: the client gives up the connection.
var hostileFrames = map[string]func(c *peerConn, xid int32){
	"an empty frame": func(c *peerConn, _ int32) { c.send(nil) },
	"half a header": func(c *peerConn, xid int32) {
		c.send(be64(be32(nil, xid), 1))
	},
	"a length of 2^31-1": func(c *peerConn, _ int32) {
		c.raw(be64(be64(be32(nil, 0x7fffffff), 0), 0)...)
	},
	"a length just above the limit": func(c *peerConn, _ int32) {
		c.raw(be64(be64(be32(nil, session.MaxFrame+1), 0), 0)...)
	},
	"a negative length": func(c *peerConn, _ int32) {
		c.raw(0xff, 0xff, 0xff, 0xff)
	},
	"the most negative length": func(c *peerConn, _ int32) { c.raw(0x80, 0, 0, 0) },
	"a length of 15": func(c *peerConn, _ int32) {
		c.raw(append(be32(nil, 15), make([]byte, 15)...)...)
	},
	"the reply to another request":    func(c *peerConn, xid int32) { c.reply(xid+1, 0, nil) },
	"the reply to request 0":          func(c *peerConn, _ int32) { c.reply(0, 0, nil) },
	"the reply to a driver's request": func(c *peerConn, _ int32) { c.reply(1, 0, nil) },
	"a ping's reply that nobody sent": func(c *peerConn, _ int32) { c.reply(-2, 0, nil) },
	"an auth reply that nobody sent":  func(c *peerConn, _ int32) { c.reply(-4, 0, nil) },
	"a setWatches reply nobody sent":  func(c *peerConn, _ int32) { c.reply(-8, 0, nil) },
	"the same reply twice": func(c *peerConn, xid int32) {
		c.reply(xid, -101, nil)
		c.reply(xid, -101, nil)
	},
	"a notification of 4 bytes": func(c *peerConn, _ int32) { c.send(be32(nil, -1)) },
	"text": func(c *peerConn, _ int32) {
		c.raw([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")...)
	},
	"a frame of nothing but zero bits": func(c *peerConn, _ int32) { c.send(make([]byte, 64)) },
}

// hostileNotifications are garbled notifications, which stand in the place of no reply.
var hostileNotifications = map[string]func(c *peerConn, xid int32){
	"a notification above the limit": func(c *peerConn, _ int32) {
		c.raw(be64(be64(be32(nil, session.MaxFrame+1), -1), 0)...)
	},
	"a notification without a body": func(c *peerConn, _ int32) { c.reply(-1, 0, nil) },
	"a notification with a cut path": func(c *peerConn, _ int32) {
		c.reply(-1, 0, be32(be32(be32(nil, 2), 3), 100))
	},
	"a notification with a huge path": func(c *peerConn, _ int32) {
		c.reply(-1, 0, be32(be32(be32(nil, 2), 3), 0x7fffffff))
	},
	"a notification, negative path": func(c *peerConn, _ int32) {
		c.reply(-1, 0, be32(be32(be32(nil, 2), 3), -2))
	},
}

// silentFrames contain nothing wrong, and never the reply.
var silentFrames = map[string]func(c *peerConn, xid int32){
	"nothing":                     func(c *peerConn, _ int32) { c.silence() },
	"half a length, then silence": func(c *peerConn, _ int32) { c.raw(0, 0); c.silence() },
	"half a frame, then silence": func(c *peerConn, xid int32) {
		c.raw(be32(be32(nil, 84), xid)...)
		c.silence()
	},
	"a long length, then silence": func(c *peerConn, _ int32) {
		c.raw(be32(nil, 0x7fffffff)...)
		c.silence()
	},
	"the header of a reply of 2 GB, then silence": func(c *peerConn, xid int32) {
		c.raw(append(be32(be32(nil, 0x7fffffff), xid), make([]byte, 12)...)...)
		c.silence()
	},
	// xid −1, path null: a notification of nothing, which is ignored
	"a frame of nothing but one bits": func(c *peerConn,
		_ int32) {
		c.send(bytes.Repeat([]byte{0xff}, 64))
	},
	"half a length, then the end": func(c *peerConn, _ int32) { c.raw(0, 0) },
	"half a frame, then the end": func(c *peerConn, xid int32) {
		c.raw(be32(be32(nil, 84), xid)...)
	},
	"the end": func(*peerConn, int32) {},
}

// withPeer runs fn in a bubble with a session on the first connection to the peer. hostile decides
// what the peer does after a request.
func withPeer(
	t *testing.T, hostile func(c *peerConn), fn func(t *testing.T, p *peer, s *session.Session),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, hostile)
		s, err := session.Start("a:1",
			session.Config{Timeout: 8 * time.Second, TickTime: 2 * time.Second, Dial: p.dial})
		require.NoError(t, err)
		defer func() {
			start := time.Now()
			require.NoError(t, s.Close())
			require.LessOrEqual(t, time.Since(start), 2500*time.Millisecond, "Close")
		}()
		fn(t, p, s)
	})
}

// once is hostile on the first connection and honest on all others.
func once(frame func(c *peerConn, xid int32)) func(c *peerConn) {
	return func(c *peerConn) {
		if c.n > 1 {
			c.serve(8*time.Second, 77)
			return
		}
		always(frame)(c)
	}
}

// always is hostile on every connection.
func always(frame func(c *peerConn, xid int32)) func(c *peerConn) {
	return func(c *peerConn) {
		if !c.hello() {
			return
		}
		c.welcome(8*time.Second, 77)
		if xid, _, ok := c.request(); ok {
			frame(c, xid)
			c.silence()
		}
	}
}

func TestAReadIsAskedAgainWhenTheServerFallsSilent(t *testing.T) {
	for name, frame := range silentFrames {
		t.Run(name, func(t *testing.T) {
			withPeer(t, once(frame), func(t *testing.T, p *peer, s *session.Session) {
				_, err := s.Exists(within(t, soon), "/")
				require.ErrorContains(t, err, "node does not exist",
					"answered on the next connection")
				require.Equal(t, 2, p.count())
			})
		})
	}
}

func TestOneGarbledAnswerCostsOneCall(t *testing.T) {
	for name, frame := range hostileFrames {
		t.Run(name, func(t *testing.T) {
			withPeer(t, once(frame), func(t *testing.T, p *peer, s *session.Session) {
				_, err := s.Exists(within(t, soon), "/")
				if name == "the same reply twice" {
					// the first is an answer; the second fails no call
					require.ErrorContains(t, err, "node does not exist")
					time.Sleep(time.Second)
				} else {
					require.ErrorIs(t, err, session.ErrGarbled)
					require.ErrorContains(t, err, "a:1", "the message names the server")
				}
				_, err = s.Exists(within(t, soon), "/")
				require.ErrorContains(t, err, "node does not exist",
					"the next one is answered on another connection")
				time.Sleep(time.Second)
				require.Equal(t, 2, p.count())
				require.Equal(t, session.Connected, s.State())
				require.EqualValues(t, 77, s.ID())
			})
		})
	}
}

func TestAGarbledNotificationCostsNoCall(t *testing.T) {
	for name, frame := range hostileNotifications {
		t.Run(name, func(t *testing.T) {
			withPeer(t, once(frame), func(t *testing.T, p *peer, s *session.Session) {
				_, err := s.Exists(within(t, soon), "/")
				require.ErrorIs(t, err, zk.ErrNoNode, "answered on the next connection")
				require.Equal(t, 2, p.count(), "the one with the notification was given up")
			})
		})
	}
}

func TestAGarbledNotificationLeavesTheOutcomeOfAWriteUnknown(t *testing.T) {
	for name, frame := range hostileNotifications {
		t.Run(name, func(t *testing.T) {
			withPeer(t, once(frame), func(t *testing.T, _ *peer, s *session.Session) {
				err := s.Delete(within(t, soon), "/x", -1)
				require.ErrorIs(t, err, session.ErrUnknownOutcome)
				require.ErrorIs(t, err, session.ErrConnection, "it was lost with the connection")
				require.ErrorIs(t, err, session.ErrGarbled, "and that is why")
				require.ErrorContains(t, err, "a:1")
			})
		})
	}
}

func TestReadsBehindAGarbledAnswerAreAskedAgain(t *testing.T) {
	for name, garbled := range map[string]func(c *peerConn, xid int32){
		"no frame":                  func(c *peerConn, _ int32) { c.send(nil) },
		"a reply that is too short": func(c *peerConn, xid int32) { c.reply(xid, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) { readsBehindAGarbledAnswer(t, garbled) })
	}
}

func readsBehindAGarbledAnswer(t *testing.T, garbled func(c *peerConn, xid int32)) {
	t.Helper()
	withPeer(t, func(c *peerConn) {
		if c.n > 1 {
			c.serve(8*time.Second, 77)
			return
		}
		if !c.hello() {
			return
		}
		c.welcome(8*time.Second, 77)
		var xids [3]int32
		for i := range xids {
			var ok bool
			if xids[i], _, ok = c.request(); !ok {
				return
			}
		}
		garbled(c, xids[0])
		c.silence()
	}, func(t *testing.T, p *peer, s *session.Session) {
		answers := make(chan error, 3)
		for range 3 {
			s.Go(func(context.Context) {
				_, err := s.Exists(within(t, soon), "/")
				answers <- err
			})
		}
		garbled := 0
		for range 3 {
			if err := <-answers; errors.Is(err, session.ErrGarbled) {
				garbled++
			} else {
				require.ErrorContains(t, err, "node does not exist")
			}
		}
		require.Equal(t, 1, garbled, "what could not be read was the answer to the first")
	})
}

func TestAWriteWhoseAnswerIsHostileHasAnUnknownOutcome(t *testing.T) {
	for name, frame := range merged(hostileFrames, silentFrames) {
		t.Run(name, func(t *testing.T) {
			withPeer(t, once(frame), func(t *testing.T, _ *peer, s *session.Session) {
				err := s.Delete(within(t, soon), "/x", -1)
				if name == "the same reply twice" {
					require.ErrorContains(t, err, "node does not exist")
					return
				}
				require.ErrorIs(t, err, session.ErrUnknownOutcome)
				garbled := hostileFrames[name] != nil
				require.Equal(t, garbled, errors.Is(err, session.ErrGarbled), "%v", err)
				require.Equal(t, !garbled, errors.Is(err, session.ErrConnection), "%v", err)
				require.ErrorContains(t, err, "a:1")
			})
		})
	}
}

func TestAServerThatIsAlwaysHostileCostsItsCallsAndNotTheProgram(t *testing.T) {
	for name, frame := range merged(hostileFrames, hostileNotifications, silentFrames) {
		t.Run(name, func(t *testing.T) {
			withPeer(t, always(frame), func(t *testing.T, p *peer, s *session.Session) {
				start := time.Now()
				ctx := within(t, soon)
				for ctx.Err() == nil && s.Err() == nil {
					_, err := s.Exists(ctx, "/")
					require.Error(t, err)
					require.LessOrEqual(t, time.Since(start), soon,
						"the call returns within its context")
				}
				require.Less(t, p.count(), 60, "dials in %v", time.Since(start))
				if err := s.Err(); err != nil {
					require.ErrorIs(t, err, session.ErrLost)
				}
			})
		})
	}
}

func TestNotificationsOfWatchesThatNoCallerSetAreIgnored(t *testing.T) {
	withPeer(t, func(c *peerConn) {
		if !c.hello() {
			return
		}
		c.welcome(8*time.Second, 77)
		for typ := int32(-3); typ < 8; typ++ {
			c.reply(-1, 0, append(be32(be32(be32(nil, typ), 3), 2), "/a"...))
			c.reply(-1, 0, be32(be32(be32(nil, typ), 3), -1)) // null
		}
		for {
			xid, _, ok := c.request()
			if !ok {
				return
			}
			c.reply(xid, -101, nil)
		}
	}, func(t *testing.T, p *peer, s *session.Session) {
		w, err := s.Watch(within(t, soon), "/a")
		require.NoError(t, err)
		require.False(t, w.Exists)
		select {
		case <-session.Fired(w):
			require.Fail(t, "fired by what came before it was set")
		default:
		}
		w.Close()
		require.Equal(t, 1, p.count())
	})
}

// A frame can have a list of millions of children with empty names. No server has such children.
func TestAListWithAChildWithoutANameIsGarbled(t *testing.T) {
	for name, list := range map[string][]byte{
		"one empty":   be32(append(be32(be32(nil, 2), 1), 'a'), 0),
		"one null":    be32(append(be32(be32(nil, 2), 1), 'a'), -1),
		"two million": append(be32(nil, 2_000_000), make([]byte, 8_000_000)...),
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, always(func(c *peerConn, xid int32) {
				c.reply(xid, 0, append(list, make([]byte, 68)...))
			}),
				func(t *testing.T, _ *peer, s *session.Session) {
					names, _, err := s.List(within(t, soon), "/")
					require.ErrorIs(t, err, session.ErrGarbled)
					require.Empty(t, names)
				})
		})
	}
}

func merged(maps ...map[string]func(*peerConn, int32)) map[string]func(*peerConn, int32) {
	all := map[string]func(*peerConn, int32){}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}
