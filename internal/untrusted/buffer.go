// SPDX-License-Identifier: Apache-2.0

package untrusted

import "fmt"

// Buffer takes what a child process writes, at most Room bytes of it.
type Buffer struct {
	Text []byte
	Room int
}

// Write implements io.Writer. It takes nothing of what exceeds the room, and returns an error.
func (b *Buffer) Write(p []byte) (int, error) {
	if len(p) > b.Room-len(b.Text) {
		return 0, fmt.Errorf("more than %d bytes", b.Room)
	}
	b.Text = append(b.Text, p...)
	return len(p), nil
}
