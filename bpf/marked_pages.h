/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads user memory that automatic NUMA balancing has marked as inaccessible, so that the next access
 * shows who uses it. bpf_probe_read_user cannot read such a page: only a fault brings it back, and
 * these programs must not sleep. The page stays in memory, so they find it through the process's page
 * tables, and read it in the kernel's direct map of all memory. User space sets page_table_levels,
 * on x86-64 only. */
#ifndef VRAMPROF_MARKED_PAGES_H
#define VRAMPROF_MARKED_PAGES_H

#include "kernel_fields.h"

/* 4 or 5; 0: this host has no such pages, and the code is dead. */
volatile const u32 page_table_levels = 0;
/* Address of the kernel's variable page_offset_base, which has the start of the direct map; 0: the
 * map starts at direct_map. */
volatile const u64 direct_map_symbol = 0, direct_map = 0;

#define PAGE_BITS 12
#define TABLE_BITS 9
#define ENTRY_PRESENT 0x1ull
#define ENTRY_LARGE 0x80ull
#define ENTRY_NO_ACCESS 0x100ull /* _PAGE_PROTNONE, in entries that are not present */
#define ENTRY_ADDRESS 0x000ffffffffff000ull

// Returns the address in the direct map of user memory that is in RAM; 0: unknown, or not there.
__attribute__((noinline)) u64 find_in_direct_map(u64 at)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct mm_struct *mm = NULL;
	u64 base = direct_map, table = 0, entry = 0;
	u32 shift = PAGE_BITS + TABLE_BITS * page_table_levels;
	// The address comes from the process. Only the lower half of its addresses is the process's.
	if (at >> (shift - 1))
		return 0;
	if (direct_map_symbol && bpf_probe_read_kernel(&base, sizeof(base), (void *)direct_map_symbol))
		return 0;
	if (READ(mm, task, mm) || !mm || READ(table, mm, pgd))
		return 0;
#pragma unroll 1
	for (int level = 0; level < 5; level++) {
		if (shift <= PAGE_BITS)
			break;
		shift -= TABLE_BITS;
		if (bpf_probe_read_kernel(&entry, sizeof(entry), (void *)(table + (at >> (shift & 63) & 511) * 8)))
			return 0;
		bool present = entry & ENTRY_PRESENT;
		if (!present && !(entry & ENTRY_NO_ACCESS))
			return 0; // not in memory
		bool is_page = shift == PAGE_BITS || entry & ENTRY_LARGE;
		if (!present) {
			if (!is_page)
				return 0;
			entry = ~entry; // the kernel inverts their addresses (asm/pgtable-invert.h)
		}
		table = base + (entry & ENTRY_ADDRESS);
		if (is_page) {
			u64 inside = (1ull << (shift & 63)) - 1;
			return base + (entry & ENTRY_ADDRESS & ~inside) + (at & inside);
		}
	}
	return 0;
}

/* The marked page that was read last: where it is in the process and in the direct map; 0: none. */
struct marked_page {
	u64 at, direct;
};

// Reads memory on a marked page. Returns 0 on success. The page was the process's while it was read
// if the tables lead to it afterwards too: a page that is freed leaves them first.
static EBPF_INLINE long read_marked(struct marked_page *page, void *destination, u32 size, const void *source)
{
	u64 inside = (u64)source & ((1 << PAGE_BITS) - 1), at = (u64)source - inside;
	if (inside + size > 1 << PAGE_BITS)
		return -1;
	if (page->at != at || !page->direct) {
		page->at = at;
		page->direct = find_in_direct_map(at);
	}
	if (!page->direct || bpf_probe_read_kernel(destination, size, (void *)(page->direct + inside)))
		return -1;
	if (find_in_direct_map(at) == page->direct)
		return 0;
	page->direct = 0;
	return -1;
}

/* Reads user memory, on a marked page or not. Outer frames share pages, so it does not try
 * bpf_probe_read_user again on the page that was read last. */
static EBPF_INLINE long read_user(struct marked_page *page, void *destination, u32 size, const void *source)
{
	if (page_table_levels && page && page->direct && page->at == ((u64)source & ~((1ull << PAGE_BITS) - 1)) &&
	    !read_marked(page, destination, size, source))
		return 0;
	long error = bpf_probe_read_user(destination, size, source);
	return error && page_table_levels && page ? read_marked(page, destination, size, source) : error;
}

#endif
