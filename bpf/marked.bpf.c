//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only
//
// Proves that marked_pages.h reads the right memory on this kernel.
#include "marked_pages.h"

// Reads a word of the caller, of which neither the address nor the page is readable otherwise, and compares it.
SEC("raw_tp/read_marked_word")
int read_marked_word(u64 *arguments)
{
	u64 word = 0;
	struct marked_page page = {};
	if (read_marked(&page, &word, sizeof(word), (void *)arguments[0]))
		return 1;
	return word == arguments[1] ? 0 : 2;
}

char _license[] SEC("license") = "GPL";
