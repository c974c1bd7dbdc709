// SPDX-License-Identifier: Apache-2.0

// Package owner finds the user at the other end of a TCP connection from this machine, by asking
// the kernel for that socket (sock_diag(7)).
package owner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrNone means that the other end is no open socket of this network namespace: it is on another
// machine, or in another container, or its program has closed it.
var ErrNone = errors.New("no socket of this machine")

// patience is how long the kernel may take. It answers within microseconds.
const patience = time.Second

// Layout of struct inet_diag_req_v2 and struct inet_diag_msg of linux/inet_diag.h, and of the
// struct inet_diag_sockid in both.
const (
	byFamily  = 20 // SOCK_DIAG_BY_FAMILY
	anyState  = 0xffffffff
	noCookie  = 0xffffffff // both halves
	idBytes   = 48
	requestID = 8 // offset of the sockid in a request
	answerID  = 4 // and in an answer

	answerUser  = answerID + idBytes + 12 // after expires, rqueue and wqueue
	answerInode = answerUser + 4
	answerBytes = answerInode + 4
)

// Of returns the user who opened the socket at remote of the connection that is accepted at local.
func Of(local, remote netip.AddrPort) (uid uint32, err error) {
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return 0, fmt.Errorf("open a netlink socket: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	answers, err := c.Execute(netlink.Message{Header: netlink.Header{Type: byFamily, Flags: netlink.Request}, Data: request(remote, local)})
	switch {
	case errors.Is(err, unix.ENOENT):
		return 0, ErrNone
	case err != nil:
		return 0, fmt.Errorf("ask for a socket: %w", err)
	}
	for _, m := range answers {
		if uid, ok := userIn(m.Data, remote, local); ok {
			return uid, nil
		}
	}
	return 0, ErrNone
}

// request asks for the socket with these ends.
func request(from, to netip.AddrPort) []byte {
	r := make([]byte, requestID+idBytes)
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_TCP
	if from.Addr().Unmap().Is6() {
		r[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(r[4:], anyState)
	id := r[requestID:]
	binary.BigEndian.PutUint16(id, from.Port())
	binary.BigEndian.PutUint16(id[2:], to.Port())
	copy(id[4:20], from.Addr().Unmap().AsSlice())
	copy(id[20:36], to.Addr().Unmap().AsSlice())
	binary.NativeEndian.PutUint32(id[40:], noCookie)
	binary.NativeEndian.PutUint32(id[44:], noCookie)
	return r
}

// userIn returns the user in an answer. The kernel may answer with a socket that only listens at
// that address, or with one that its program has closed: that has no inode, and root as its user.
func userIn(answer []byte, from, to netip.AddrPort) (uint32, bool) {
	if len(answer) < answerBytes {
		return 0, false
	}
	id := answer[answerID:]
	end := func(port, address []byte) netip.AddrPort {
		if answer[0] == unix.AF_INET {
			address = address[:4]
		}
		ip, _ := netip.AddrFromSlice(address)
		return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(port))
	}
	same := end(id, id[4:20]) == plain(from) && end(id[2:], id[20:36]) == plain(to)
	return binary.NativeEndian.Uint32(answer[answerUser:]), same && binary.NativeEndian.Uint32(answer[answerInode:]) != 0
}

// plain returns an address as it is in an answer: IPv4 in IPv6 is IPv4, and there is no zone.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
