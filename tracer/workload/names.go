// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os"

	"golang.org/x/sys/unix"
)

// names maps ids to names that the entries of a folder tell.
type names[T any] struct {
	dirs  []string // the first readable one is used
	most  int      // entries that are read
	parse func(entry string) (id string, name T, ok bool)
	known map[string]T
}

// find looks up an id. If it is unknown, find reads the folder again.
func (n *names[T]) find(id string) T {
	name, ok := n.known[id]
	if !ok {
		n.read()
		name = n.known[id]
	}
	return name
}

func (n *names[T]) read() {
	for _, dir := range n.dirs {
		// O_DIRECTORY: opening a FIFO would block.
		f, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		entries, _ := f.Readdirnames(n.most)
		f.Close()
		n.known = make(map[string]T, len(entries))
		for _, entry := range entries {
			if id, name, ok := n.parse(entry); ok {
				n.known[id] = name
			}
		}
		return
	}
}
