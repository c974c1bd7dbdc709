//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only
//
// Proves that marked_pages.h reads the right memory on this kernel.
#include "marked_pages.h"

// Compares a word of the caller's memory, at arguments[0], with arguments[1]. Returns 0 if they are
// equal, 1 if it cannot read the word, and 2 if they differ; and 4 more if the page is not marked.
SEC("raw_tp/read_marked_word")
int read_marked_word(u64 *arguments)
{
	u64 word = 0;
	struct marked_page page = {};
	int open = bpf_probe_read_user(&word, sizeof(word), (void *)arguments[0]) ? 0 : 4;
	if (read_marked(&page, &word, sizeof(word), (void *)arguments[0]))
		return open | 1;
	return open | (word == arguments[1] ? 0 : 2);
}

char _license[] SEC("license") = "GPL";
