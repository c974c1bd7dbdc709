// SPDX-License-Identifier: Apache-2.0

package kvuse

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/tracer/procfs"
)

const (
	maxTable   = 4 << 20 // bytes of /proc/PID/net/tcp
	maxFiles   = 1 << 16 // of a process
	stateLists = "0A"    // TCP_LISTEN
)

// inNamespace reports whether a process has the network namespace of this one, so that its loopback
// is ours.
func inNamespace(pid uint32) (bool, error) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return false, err
	}
	of, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	return of == own, err
}

// listening returns where to reach the ports that a process listens on itself, on loopback
// addresses or on all.
func listening(pid uint32) (list []netip.AddrPort) {
	sockets := socketsOf(pid)
	if len(sockets) == 0 {
		return nil
	}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		for line := range strings.Lines(string(procfs.Read(pid, table, maxTable))) {
			if at, inode, ok := listener(line); ok && sockets[inode] && !slices.Contains(list, at) {
				list = append(list, at)
			}
		}
	}
	return list
}

// socketsOf returns the inodes of a process's sockets.
func socketsOf(pid uint32) map[uint64]bool {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxFiles)
	sockets := map[uint64]bool{}
	for _, name := range names {
		target, _ := os.Readlink(folder + "/" + name)
		if text, ok := strings.CutPrefix(target, "socket:["); ok {
			if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); err == nil {
				sockets[inode] = true
			}
		}
	}
	return sockets
}

// listener reads a line of /proc/PID/net/tcp:
//
//	0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 …
//
// ok is false unless it listens on a loopback address or on all addresses; then at is a loopback
// address.
func listener(line string) (at netip.AddrPort, inode uint64, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != stateLists {
		return at, 0, false
	}
	address, port, _ := strings.Cut(fields[1], ":")
	raw, err := hex.DecodeString(address)
	number, err2 := strconv.ParseUint(port, 16, 16)
	inode, err3 := strconv.ParseUint(fields[9], 10, 64)
	if err != nil || err2 != nil || err3 != nil || number == 0 || len(raw) != 4 && len(raw) != 16 {
		return at, 0, false
	}
	for i := 0; i < len(raw); i += 4 { // words in the order of the machine
		slices.Reverse(raw[i : i+4])
	}
	ip, _ := netip.AddrFromSlice(raw)
	switch ip = ip.Unmap(); {
	case ip.IsUnspecified() && ip.Is4():
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case ip.IsUnspecified():
		ip = netip.IPv6Loopback()
	case !ip.IsLoopback():
		return at, 0, false
	}
	return netip.AddrPortFrom(ip, uint16(number)), inode, true
}
