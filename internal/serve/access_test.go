// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/internal/ceiling"
	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/internal/session"
)

func TestOnlyAConfigurationWithUsersChecksPasswords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yml")
	everywhere, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer everywhere.Close()
	here, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	for text, want := range map[string]struct{ passwords, open bool }{
		"":                             {false, true},
		"basic_auth_users: {}\n":       {false, true},
		"basic_auth_users:\n  a: $2\n": {true, false},
		"tls_server_config:\n  client_auth_type: RequireAndVerifyClientCert\n": {false, false},
		"tls_server_config:\n  client_auth_type: RequestClientCert\n":          {false, true},
		"basic_auth_users: [\n": {false, true},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l := &listeners{config: path, tcp: []net.Listener{here, everywhere}}
		if l.passwords() != want.passwords || l.open() != want.open {
			t.Errorf("%q: passwords %v, open %v", text, l.passwords(), l.open())
		}
		l.tcp = l.tcp[:1]
		if l.open() {
			t.Errorf("%q: open on a loopback address", text)
		}
	}
	if (&listeners{}).passwords() || (&listeners{config: "/nonexistent"}).passwords() {
		t.Error("passwords are checked without a configuration")
	}
}

// TestScarceMemoryDropsAnswersFirst: the steps after that would panic, as there are no books.
func TestScarceMemoryDropsAnswersFirst(t *testing.T) {
	s := &server{session: &session.Session{}, memory: &ceiling.Watch{}, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	pages := web.New(web.Config{Session: s, Ready: func() bool { return true }})
	s.pages.Store(pages)
	ask := func() int {
		w := httptest.NewRecorder()
		pages.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/debug/pprof/gpu", nil))
		return w.Code
	}
	if code := ask(); code != 200 {
		t.Fatalf("before: %d", code)
	}
	s.relieve()
	if code := ask(); code != 503 || s.relief.steps.Load() != 1 {
		t.Errorf("answers: %d after %d steps", code, s.relief.steps.Load())
	}
}
