// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/serve/web/owner"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// peer is who is at the other end of a connection: a user of this machine, or a network address.
type peer struct {
	local   bool
	user    uint32       // of local ones: the user id plus 1, or ledger.NoUser if it is unknown
	address netip.Prefix // of others: an IPv4 address, or the /64 of an IPv6 address
}

func localPeer(uid uint32) peer { return peer{local: true, user: uid + 1} }

// unknownPeer is some user of this machine.
var unknownPeer = peer{local: true, user: ledger.NoUser}

// peerKey is the key of a connection's peer in the contexts of its requests.
type peerKey struct{}

// clients are those who are connected, and who they are.
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

func addressOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
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

// OwnerOnly returns a listener on a Unix socket that accepts connections only of root and of the
// user that this process runs as. It is a second line behind the mode of the socket and its folder.
func OwnerOnly(l net.Listener) net.Listener { return ownerOnly{l, userOf} }

type ownerOnly struct {
	net.Listener
	peer func(net.Conn) (uid uint32, err error)
}

func (l ownerOnly) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := l.peer(conn); err == nil && (uid == 0 || uid == uint32(os.Geteuid())) {
			return conn, nil
		}
		conn.Close()
	}
}

// userOf returns the user at the other end of a Unix socket.
func userOf(conn net.Conn) (uid uint32, err error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0, unix.ENOTSOCK
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	if e := raw.Control(func(fd uintptr) { credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, err
	}
	return credentials.Uid, nil
}
