// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"

	"github.com/vramprof/vramprof/internal/serve/web/owner"
)

// clients knows who is connected.
type clients struct {
	connections *connections
	ownerOf     func(local, remote netip.AddrPort) (uid uint32, err error)
}

func newClients() *clients { return &clients{connections: newConnections(), ownerOf: owner.Of} }

// peerAt returns who is at the other end of a connection. One from an address of this machine is its
// user's, whatever the address that it was made to.
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
