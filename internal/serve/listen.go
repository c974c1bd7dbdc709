// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	toolkit "github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/internal/untrusted"
)

const (
	shutTime = 2 * time.Second // for requests that run when tracing ends
)

// listeners are the open sockets of serve. They are opened before privileges are given up:
// afterwards the process can accept on them, and open none.
type listeners struct {
	tcp     []net.Listener
	unix    net.Listener // nil: none
	config  string       // path of --web.config.file, or ""
	servers []*http.Server
}

// listen opens the sockets and checks the files for TLS.
func listen(config *Config) (_ *listeners, err error) {
	l := &listeners{config: config.WebConfig}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := toolkit.Validate(l.config); err != nil {
		return nil, fault.Usage(fmt.Errorf("--web.config.file: %w", err))
	}
	for _, address := range config.Addresses {
		socket, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fault.New(fault.Failed, fmt.Errorf("listen on %s: %w (use another --web.listen-address)", address, output.Cause(err)))
		}
		l.tcp = append(l.tcp, socket)
	}
	if dir := config.RunDir; dir != "" {
		if l.unix, err = listenIn(dir); err != nil {
			return nil, fault.New(fault.Failed, err)
		}
	}
	return l, nil
}

// listenIn creates the socket of --connect, which only its owner can use. A socket that nobody
// listens on is left from a server that was killed.
func listenIn(dir string) (net.Listener, error) {
	if err := openRunDir(dir); err != nil {
		return nil, fmt.Errorf("create a socket in %s: %w", dir, output.Cause(err))
	}
	path := filepath.Join(dir, web.SocketName)
	if other, err := net.Dial("unix", path); err == nil {
		other.Close()
		return nil, fmt.Errorf("listen on %s: another vramprof serve is running (use another --run-dir)", path)
	} else if errors.Is(err, unix.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	before := unix.Umask(0o177) // nobody else may connect, not even for a moment
	defer unix.Umask(before)
	socket, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, output.Cause(err))
	}
	return socket, nil
}

// openRunDir creates the folder of the socket, and checks that no other user can change it. It
// takes their rights to write from an empty folder of this user that is not shared like /tmp:
// Kubernetes makes such folders.
func openRunDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	root, err := untrusted.OwnFolder(dir, untrusted.NoWriting)
	if errors.Is(err, untrusted.ErrUnsafe) && isFresh(dir) && os.Chmod(dir, 0o700) == nil {
		root, err = untrusted.OwnFolder(dir, untrusted.NoWriting)
	}
	if err != nil {
		return err
	}
	return root.Close()
}

func isFresh(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode()&os.ModeSticky != 0 || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return false
	}
	list, err := os.ReadDir(dir)
	return err == nil && len(list) == 0
}

// serve answers requests until shut.
func (l *listeners) serve(pages *web.Server, log *slog.Logger) {
	for _, socket := range l.tcp {
		x := pages.HTTP(pages.Handler(), log)
		l.servers = append(l.servers, x)
		go l.answer(log, func() error {
			return toolkit.Serve(socket, x, &toolkit.FlagConfig{WebConfigFile: &l.config}, log)
		})
	}
	if l.unix != nil {
		x := pages.HTTP(pages.Connect(), log)
		l.servers = append(l.servers, x)
		go l.answer(log, func() error { return x.Serve(web.OwnerOnly(l.unix)) })
	}
}

// answer runs a server of one socket. Its end does not end tracing.
func (l *listeners) answer(log *slog.Logger, run func() error) {
	if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		log.Error("serve HTTP", "error", err)
	}
}

func (l *listeners) addresses() (list []string) {
	for _, socket := range l.tcp {
		list = append(list, socket.Addr().String())
	}
	if l.unix != nil {
		list = append(list, l.unix.Addr().String())
	}
	return list
}

// shut ends the servers; requests that run have shutTime to end.
func (l *listeners) shut() {
	ctx, cancel := context.WithTimeout(context.Background(), shutTime)
	defer cancel()
	for _, x := range l.servers {
		if x.Shutdown(ctx) != nil {
			x.Close()
		}
	}
}

func (l *listeners) close() {
	for _, socket := range l.tcp {
		socket.Close()
	}
	if l.unix != nil {
		l.unix.Close() // removes its name
	}
}
