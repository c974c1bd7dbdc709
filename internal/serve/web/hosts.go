// SPDX-License-Identifier: Apache-2.0

package web

import (
	"io"
	"net"
	"os"
	"slices"
	"strings"
)

// hostOf returns the name in a Host header: "[::1%25lo]:9836" is "::1", "LOCALHOST." is
// "localhost".
func hostOf(header string) string {
	name := header
	if host, _, err := net.SplitHostPort(header); err == nil {
		name = host
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	name, _, _ = strings.Cut(name, "%")
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// ownNames returns the names that the machine answers to: its own, and the given ones, which may
// have a port.
func ownNames(external []string) (names []string) {
	if host, err := os.Hostname(); err == nil && host != "" {
		names = namesOf(hostOf(host), textOf("/etc/hosts"), textOf("/etc/resolv.conf"))
	}
	for _, name := range external {
		names = append(names, hostOf(name))
	}
	return names
}

// namesOf returns the names of a machine: its host name, whole and up to the first dot, those
// beside it in /etc/hosts, and it with the domains that resolv.conf searches. No server is asked.
func namesOf(host, hosts, resolv string) []string {
	short, _, _ := strings.Cut(host, ".")
	names := []string{host, short}
	for line := range strings.Lines(hosts) { // 127.0.1.1 node7.example.org node7
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(strings.ToLower(line)); len(fields) > 1 && slices.Contains(fields[1:], host) {
			names = append(names, fields[1:]...)
		}
	}
	for line := range strings.Lines(resolv) { // search example.org corp.example.org
		if fields := strings.Fields(strings.ToLower(line)); len(fields) > 1 && (fields[0] == "search" || fields[0] == "domain") {
			for _, domain := range fields[1:] {
				names = append(names, short+"."+strings.Trim(domain, "."))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

const maxHostsFile = 64 << 10

func textOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxHostsFile))
	return string(text)
}
