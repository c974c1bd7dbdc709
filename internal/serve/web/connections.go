// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/serve/web/owner"
)

// Limits of connections. Each takes about 20 KB, with TLS 60 KB.
const (
	maxConnections = 256
	maxStreams     = 32       // requests at a time of one HTTP/2 connection
	maxHeader      = 16 << 10 // bytes

	headerTime  = 10 * time.Second // to send the header of a request
	requestTime = 30 * time.Second // to send all of it
	answerTime  = time.Minute      // to take the answer, and to compose it
	idleTime    = 2 * time.Minute
)

// lasts lets a request take longer than others.
func lasts(w http.ResponseWriter, d time.Duration) {
	c, until := http.NewResponseController(w), time.Now().Add(d+answerTime)
	_ = c.SetReadDeadline(until) // for the request's context: a server reads ahead
	_ = c.SetWriteDeadline(until)
}

// connections bounds the open connections. Beyond maxConnections, one of the peer that has the most
// is closed, so that neither idle nor busy clients keep out others.
type connections struct {
	mu     sync.Mutex
	open   map[net.Conn]*connection
	held   map[peer]int
	change uint64
}

type connection struct {
	peer    peer
	waiting bool   // for a request
	changed uint64 // number of the change since when
}

func newConnections() *connections {
	return &connections{open: map[net.Conn]*connection{}, held: map[peer]int{}}
}

// add counts a new connection.
func (c *connections) add(conn net.Conn, p peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change++
	c.open[conn] = &connection{p, true, c.change}
	c.held[p]++
	if len(c.open) > maxConnections {
		c.closeOne()
	}
}

// changed is the ConnState of servers.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.open[conn]
	if x == nil {
		return
	}
	switch state {
	case http.StateNew, http.StateIdle, http.StateActive:
		c.change++
		x.waiting, x.changed = state != http.StateActive, c.change
	default:
		c.remove(conn, x)
	}
}

func (c *connections) remove(conn net.Conn, x *connection) {
	delete(c.open, conn)
	if c.held[x.peer]--; c.held[x.peer] == 0 {
		delete(c.held, x.peer)
	}
}

// closeOne closes a connection of the peer that has the most: the one that has waited longest for a
// request, or else been answered for longest. It waits for no client, as the close of a TLS
// connection would.
func (c *connections) closeOne() {
	var conn net.Conn
	var x *connection
	for other, y := range c.open {
		if x == nil || c.before(y, x) {
			conn, x = other, y
		}
	}
	c.remove(conn, x)
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	conn.Close()
}

// before reports whether x is closed before y.
func (c *connections) before(x, y *connection) bool {
	if d := cmp.Compare(c.held[x.peer], c.held[y.peer]); d != 0 {
		return d > 0
	}
	if x.waiting != y.waiting {
		return x.waiting
	}
	return x.changed < y.changed
}

// clients knows who is connected.
type clients struct {
	connections *connections
	ownerOf     func(local, remote netip.AddrPort) (uid uint32, err error)
}

func newClients() *clients { return &clients{connections: newConnections(), ownerOf: owner.Of} }

// peerAt returns who is at the other end of a connection. One from an address of this machine is
// its user's, whatever the address that it was made to.
func (c *clients) peerAt(local, remote net.Addr) peer {
	from := addressOf(remote)
	if !from.IsValid() { // a Unix socket: OwnerOnly admits root and this user
		return localPeer(uint32(os.Geteuid()))
	}
	to := addressOf(local)
	if to.IsValid() {
		if uid, err := c.ownerOf(to, from); err == nil {
			return localPeer(uid)
		}
	}
	address := from.Addr().Unmap().WithZone("")
	if address.IsLoopback() || to.IsValid() && (to.Addr().Unmap().IsLoopback() || to.Addr().Unmap().WithZone("") == address) {
		return unknownPeer
	}
	bits := address.BitLen()
	if address.Is6() {
		bits = 64 // one host may have all of them
	}
	prefix, _ := address.Prefix(bits)
	return peer{address: prefix}
}

// peerOf returns who makes a request.
func (c *clients) peerOf(r *http.Request) peer {
	if p, ok := r.Context().Value(peerKey{}).(peer); ok {
		return p
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return unknownPeer
	}
	return c.peerAt(local, net.TCPAddrFromAddrPort(remote))
}

// withPeer is the ConnContext of servers.
func (c *clients) withPeer(ctx context.Context, conn net.Conn) context.Context {
	p := c.peerAt(conn.LocalAddr(), conn.RemoteAddr())
	c.connections.add(conn, p)
	return context.WithValue(ctx, peerKey{}, p)
}

// peerKey is the key of a connection's peer in the contexts of its requests.
type peerKey struct{}
