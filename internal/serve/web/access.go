// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// seenBy returns whose processes a client sees: everybody, or a user's id plus 1. Clients of other
// machines see all, as do those that gave a password or a certificate: who may connect and who must
// do that are --web.listen-address and --web.config.file. A program of this machine can connect in
// any case.
func (s *Server) seenBy(r *http.Request) (user uint32, err error) {
	p := s.peerOf(r)
	switch {
	case !p.local, p.user == localPeer(0).user, p.user == localPeer(uint32(os.Geteuid())).user, slices.Contains(s.config.Users, p.user-1), s.authenticated(r):
		return everybody, nil
	case p.user == ledger.NoUser:
		return 0, forbidden("vramprof cannot find out which user of this machine asks, and shows the processes of all users only to root and to users named by --web.user " +
			"(is AF_NETLINK allowed, and the kernel's module tcp_diag there?)")
	}
	return p.user, nil
}

// seesAll returns an error for a client that does not see the processes of all users.
func (s *Server) seesAll(r *http.Request) error {
	user, err := s.seenBy(r)
	if err == nil && user != everybody {
		err = forbidden(fmt.Sprintf("vramprof shows this only to root and to users named by --web.user, not to user %d: it is about the processes of all users "+
			"(start vramprof serve with --web.user; your own processes are at /, /api/v1/report, /api/v1/leaks, /api/v1/processes and /debug/pprof/gpu)", user-1))
	}
	return err
}

// authenticated reports whether a client gave a certificate or a password that was checked.
func (s *Server) authenticated(r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return true
	}
	_, _, given := r.BasicAuth()
	return given && s.config.Passwords != nil && s.config.Passwords()
}

// parse reads the parameters of a request, and whose processes it may see.
func (s *Server) parse(r *http.Request, known ...string) (query, error) {
	q, err := parseQuery(r.URL.RawQuery, known...)
	if err == nil {
		q.user, err = s.seenBy(r)
	}
	return q, err
}

// of returns the part of a snapshot that a query selects by process and that its client may see.
func (q *query) of(s *ledger.Snapshot) (*ledger.Snapshot, error) {
	if q.pid == 0 && q.pod == "" && q.user == everybody {
		return s, nil
	}
	out := s.Only(q.selects)
	switch {
	case len(out.Processes) == 0 && q.user != everybody:
		return nil, forbidden(fmt.Sprintf("no traced process of user %d%s (vramprof shows the processes of other users only to root and to users named by --web.user)", q.user-1, q.who(" is ")))
	case len(out.Processes) == 0:
		return nil, notFound("no traced process" + q.who(" is "))
	case q.user != everybody:
		hideOthers(out)
	}
	return out, nil
}

// hideOthers removes what is not of one process but may be of other users' processes.
func hideOthers(s *ledger.Snapshot) {
	if n := len(s.Warnings); n > 0 {
		s.Warnings = []string{fmt.Sprintf("%d warnings are about the session and the processes of all users, and shown only to root and to users named by --web.user", n)}
	}
	s.Forgotten = ledger.Forgotten{}
	if s.Highest != nil {
		hideOthers(s.Highest)
	}
}
