// SPDX-License-Identifier: Apache-2.0

package procenv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procmem"
)

const (
	pageSize = 4096 // bytes per read; the machine's page size is a multiple
	maxPages = 1024 // per environment
	attempts = 4    // the process may change its environment during a read
	pause    = time.Millisecond
)

var (
	errUnset   = errors.New("the C library has not initialized it")
	errLarge   = errors.New("too large")
	errChanged = errors.New("it keeps changing")
)

// process reads another process's memory.
type process int

// readPage reads one page.
func (p process) readPage(address uint64, page []byte) error {
	if err := procmem.Read(int(p), page, address); err != nil {
		return fmt.Errorf("read memory at %#x: %w", address, err)
	}
	return nil
}

// pager reads whole pages.
type pager interface {
	readPage(address uint64, page []byte) error
}

// memory caches the pages that it has read: the strings are close together.
type memory struct {
	pager
	pages map[uint64][]byte
}

// at returns the bytes from address to the end of its page.
func (m *memory) at(address uint64) ([]byte, error) {
	base := address &^ (pageSize - 1)
	page, ok := m.pages[base]
	if !ok {
		if len(m.pages) == maxPages {
			return nil, errLarge
		}
		page = make([]byte, pageSize)
		if err := m.readPage(base, page); err != nil {
			return nil, err
		}
		m.pages[base] = page
	}
	return page[address-base:], nil
}

func (m *memory) pointer(address uint64) (uint64, error) {
	if address%8 != 0 {
		return 0, fmt.Errorf("pointer at odd address %#x", address)
	}
	b, err := m.at(address)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// cString reads a string. whole is false if the string is longer than limit.
func (m *memory) cString(address uint64, limit int) (text []byte, whole bool, err error) {
	for len(text) <= limit {
		b, err := m.at(address)
		if err != nil {
			return nil, false, err
		}
		if end := bytes.IndexByte(b, 0); end >= 0 {
			text = append(text, b[:end]...)
			return text, len(text) <= limit, nil
		}
		text = append(text, b...)
		address += uint64(len(b))
	}
	return nil, false, nil
}

// ofMemory reads the environment from the process's memory, starting at the C library's variable.
func ofMemory(pid int) ([]string, error) {
	variable, err := findVariable(pid)
	if err != nil {
		return nil, err
	}
	return read(process(pid), variable)
}

// read repeats until the environment does not change during a read. glibc's setenv frees the array
// before it publishes the new one. Until then, the first entries are the allocator's pointers,
// which rarely point to "KEY=value".
func read(p pager, variable uint64) (variables []string, err error) {
	for attempt := range attempts {
		if attempt > 0 {
			time.Sleep(pause)
		}
		m := &memory{p, map[uint64][]byte{}}
		variables, err = m.environment(variable)
		switch {
		case err != nil && !temporary(err):
			return nil, err
		case err != nil:
		case !m.unchanged(variable):
			err = errChanged
		case !slices.ContainsFunc(variables, odd):
			return variables, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(variables, odd), nil // the environment really contains such an entry
}

func odd(variable string) bool { return strings.IndexByte(variable, '=') <= 0 }

func temporary(err error) bool {
	return !errors.Is(err, errUnset) && !errors.Is(err, errLarge) && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM)
}

func (m *memory) environment(variable uint64) ([]string, error) {
	array, err := m.pointer(variable)
	if err != nil {
		return nil, err
	}
	if array == 0 {
		return nil, errUnset // or cleared by clearenv(3), which looks the same
	}
	variables, total := []string{}, 0
	for i := range uint64(maxVariables + 1) {
		address, err := m.pointer(array + 8*i)
		if err != nil {
			return nil, err
		}
		if address == 0 {
			return variables, nil
		}
		text, whole, err := m.cString(address, maxVariable)
		if err != nil {
			return nil, err
		}
		if total += len(text); total > maxTotal {
			return nil, errLarge
		}
		if whole {
			variables = append(variables, string(text))
		}
	}
	return nil, errLarge
}

// unchanged reads the variable and the array again and reports whether both are unchanged.
func (m *memory) unchanged(variable uint64) bool {
	now := &memory{m.pager, map[uint64][]byte{}}
	array, err := m.pointer(variable)
	if err != nil {
		return false
	}
	if again, err := now.pointer(variable); err != nil || again != array {
		return false
	}
	for i := range uint64(maxVariables + 1) {
		before, err := m.pointer(array + 8*i)
		after, err2 := now.pointer(array + 8*i)
		if err != nil || err2 != nil || before != after {
			return false
		}
		if before == 0 {
			return true
		}
	}
	return false
}
