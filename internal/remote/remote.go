// SPDX-License-Identifier: Apache-2.0

// Package remote asks a running vramprof serve.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// DefaultRunDir is the folder of the socket of a vramprof serve without --run-dir.
const DefaultRunDir = "/run/vramprof"

// DefaultSocket is the socket there.
var DefaultSocket = filepath.Join(DefaultRunDir, web.SocketName)

// Server is a running vramprof serve.
type Server struct {
	*web.Client
	path string
	pids []uint32       // only these processes; nil: all
	only archive.Filter // likewise
}

// New returns the server that listens on a socket. Its books are of processes that pids, nil for
// all, and a filter choose.
func New(path, version string, pids []uint32, only archive.Filter) *Server {
	return &Server{Client: web.NewClient(path, version), path: path, pids: pids, only: only}
}

// Books returns the server's books of now, or those of the chosen processes.
func (r *Server) Books(ctx context.Context, whole bool) (*ledger.Snapshot, error) {
	s, err := r.Client.Books(ctx, whole)
	if err != nil {
		return nil, fault.New(r.kind(err), r.explain(err))
	}
	if r.pids == nil && r.only == (archive.Filter{}) {
		return s, nil
	}
	s = s.Only(func(p *ledger.Process) bool {
		return (r.pids == nil || slices.Contains(r.pids, p.PID)) && source.Passes(r.only, p)
	})
	if len(s.Processes) == 0 && r.pids == nil {
		return nil, fault.New(fault.NoProcess, fmt.Errorf("no process in the books of vramprof serve is %s", source.FilterText(r.only)))
	}
	for _, pid := range r.pids {
		if !slices.ContainsFunc(s.Processes, func(p ledger.Process) bool { return p.PID == pid }) {
			return nil, fault.New(fault.NoProcess, fmt.Errorf("process %d is not in the books of vramprof serve (it does not use CUDA, or it ended long ago)", pid))
		}
	}
	return s, nil
}

// TensorBlocks returns the live tensors of a process whose stacks the server knows.
func (r *Server) TensorBlocks(ctx context.Context, pid uint32) ([]ledger.TensorBlock, error) {
	list, traced, err := r.Client.TensorBlocks(ctx, pid)
	if err != nil {
		return nil, fault.New(r.kind(err), r.explain(err))
	}
	if !traced {
		return nil, fault.New(fault.NoProcess, fmt.Errorf("vramprof serve does not trace process %d", pid))
	}
	return list, nil
}

// Listens reports whether a process listens on a socket to which this one may connect.
func Listens(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err == nil
}

func (r *Server) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("connect to %s: vramprof serve is not running (systemctl start vramprof, or trace without --connect)", r.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("connect to %s: permission denied (only root and the user of vramprof serve may)", r.path)
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return errors.New("vramprof serve ended, or refused the connection")
	}
	return err
}

func (*Server) kind(err error) fault.Kind {
	if errors.Is(err, fs.ErrPermission) {
		return fault.NoPrivilege
	}
	return fault.Failed
}
