// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

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

func addressOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
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
