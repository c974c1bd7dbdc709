// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/report/reporttest"
)

// FuzzRequests sends any request as several clients: none panics, hangs, gets much, or sees what is
// of another user, and each answer forbids frames and scripts.
func FuzzRequests(f *testing.F) {
	for _, path := range slices.Concat(sharedPaths, wholePaths, []string{
		"/events?after=x", "/metrics", "/-/healthy", "/-/ready", "/debug/pprof/gpu?seconds=3&pid=8&plane=driver&device=cuda:0&gc=1", "/api/v1/leaks?older=1m&top=3&pod=a/b",
		"/api/v1/archive?process=bobs&pod=ml/x", "/?at=2026-11-22T03:12:00Z", "//", "/%2e%2e/", "*", "http://evil.example/", "/api/v1/report?view=%00",
	}) {
		f.Add([]byte("GET "+path+" HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip;q=0, br\r\n\r\n"), uint8(1))
		f.Add([]byte("HEAD "+path+" HTTP/1.0\r\nHost: [::1%25lo]:9836\r\nLast-Event-ID: a\r\nSec-Fetch-Site: same-site\r\n\r\n"), uint8(2))
		f.Add([]byte("GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic YTpi\r\nAccept: application/openmetrics-text\r\n\r\n"), uint8(0))
	}
	f.Add([]byte("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"), uint8(3))
	clients := []peer{localPeer(0), localPeer(alice), localPeer(bob), unknownPeer, testPeer(1)}
	secrets := [][]string{nil, {"secret_of_8", "bobs", "/home/bob"}, {"secret_of_7", "alices", "/home/alice"}, {"secret_of", "alices", "bobs", "/home/"}, nil}
	s := usersServer(Config{Passwords: func() bool { return false }})
	f.Fuzz(func(t *testing.T, raw []byte, who uint8) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return // the server answers by itself
		}
		at := int(who) % len(clients)
		ctx, gone := context.WithCancel(r.Context())
		gone() // nothing waits
		s.budgets = newBudgets(time.Now)
		w := serve(s, asked(r.WithContext(ctx), "127.0.0.1", clients[at]))
		if w.Body.Len() > 4<<20 {
			t.Errorf("%d bytes", w.Body.Len())
		}
		if h := w.Header(); !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%d with %v", w.Code, h)
		}
		text := textOfAnswer(w)
		if w.Code != 200 && !reporttest.Printable(text) {
			t.Errorf("%d %q", w.Code, text)
		}
		for _, secret := range secrets[at] {
			if w.Code == 200 && strings.Contains(text, secret) {
				t.Errorf("%v sees %s: %s", clients[at], secret, r.URL)
			}
		}
		if n := s.running.taken() + s.composing.taken() + s.writing.taken() + s.waiting.taken() + s.reading.taken() + s.scraping.taken() + s.monitoring.taken(); n != 0 || s.bodies.all != 0 {
			t.Errorf("%d places and %d bytes stay taken", n, s.bodies.all)
		}
	})
}

// textOfAnswer returns an answer's text, unpacked if it is a profile.
func textOfAnswer(w *httptest.ResponseRecorder) string {
	if w.Header().Get("Content-Type") != "application/octet-stream" {
		return w.Body.String()
	}
	p, err := profile.Parse(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		return fmt.Sprint(err)
	}
	return p.String()
}
