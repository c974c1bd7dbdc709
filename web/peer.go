// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// OwnerOnly returns a listener on a Unix socket that accepts connections only of root and of the
// user that this process runs as. It is a second line behind the mode of the socket and its folder.
func OwnerOnly(l net.Listener) net.Listener { return ownerOnly{l, peerOf} }

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

// peerOf returns the user at the other end of a Unix socket.
func peerOf(conn net.Conn) (uid uint32, err error) {
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
