// SPDX-License-Identifier: Apache-2.0

package session

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMapOpenTwiceCountsOnce reads files as in /proc/PID/fdinfo.
func TestMapOpenTwiceCountsOnce(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"3": "pos:\t0\nmap_type:\t1\nmemlock:\t4096\nmap_id:\t7\nfrozen:\t0\n",
		"4": "pos:\t0\nmap_type:\t1\nmemlock:\t4096\nmap_id:\t7\nfrozen:\t0\n",
		"5": "pos:\t0\nmap_type:\t2\nmemlock:\t100\nmap_id:\t8\nfrozen:\t0\n",
		"6": "pos:\t0\nprog_type:\t2\nmemlock:\t1000\nprog_id:\t9\n",
		"7": "pos:\t0\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := mapBytes(dir); n != 4196 {
		t.Errorf("the maps take %d bytes, want 4196", n)
	}
}
