/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads user memory that automatic NUMA balancing has marked as inaccessible, so that the next access
 * shows who uses it. bpf_probe_read_user cannot read such a page: only a fault brings it back, and
 * these programs must not sleep. The page stays in memory, so they find it through the process's page
 * tables, and read it in the kernel's direct map of all memory. */
#ifndef VRAMPROF_MARKED_PAGES_H
#define VRAMPROF_MARKED_PAGES_H

#include "kernel_fields.h"

/* User space sets these. 0 levels: this host has no such pages, and the code is dead. */
volatile const u32 page_table_levels = 0;
/* x86-64: the start of the direct map is in the kernel's variable at direct_map_symbol, or, if that
 * is 0, it is direct_map. arm64: the map begins at direct_map, and the variable has the physical
 * address of what is there. */
volatile const u64 direct_map_symbol = 0, direct_map = 0;
/* Number of the page after all memory. Beyond may be devices, which reads may change. */
volatile const u64 memory_end = 0;

#define ENTRY_PRESENT 0x1ull
#if defined(__x86_64__)
#define PAGE_BITS 12
#define ENTRY_ADDRESS 0x000ffffffffff000ull
#define ENTRY_MARK 0x100ull /* _PAGE_PROTNONE, in entries that are not present */
#define IS_MARKED(entry) ((entry) & ENTRY_MARK)
#define IS_LEAF(entry, shift) ((shift) == PAGE_BITS || (entry) & 0x80)
#else
/* Pages of 4, 16 or 64 KiB, and the bits of a marked entry among those of ENTRY_MARKS. */
volatile const u32 page_bits = 12;
volatile const u64 entry_mark = 0;
#define PAGE_BITS page_bits
#define ENTRY_ADDRESS (0x0000ffffffffffffull & ~0ull << PAGE_BITS)
#define HAS_52_BITS (!(direct_map << 12))
/* Address bits from 48 on. Those from 50 on exist only with addresses of 52 bits (LPA2). */
#define ENTRY_BEYOND (PAGE_BITS == 16 ? 0xf000ull : 3ull << 48 | (HAS_52_BITS ? 3ull << 8 : 0))
/* The end of the direct map: the middle of the kernel's addresses. With 52 bits, the kernel keeps
 * what lies behind it where processors with 48 bits reach it. */
#define DIRECT_MAP_END (HAS_52_BITS ? ~0ull << 47 : ~(~direct_map >> 1))
/* PTE_PROT_NONE, until Linux 6.9, and PTE_NG. In an entry that is not present, PTE_NG is
 * PTE_PRESENT_INVALID since then. Entries of swapped pages lack the former before, the latter now. */
#define ENTRY_MARKS (1ull << 58 | 1ull << 11)
#define IS_MARKED(entry) (((entry) & ENTRY_MARKS) == entry_mark)
#define IS_LEAF(entry, shift) (!((entry) & 2) == ((shift) != PAGE_BITS))
#endif
#define TABLE_BITS (PAGE_BITS - 3)
#define PAGE_BYTES (1ull << PAGE_BITS)

/* An address from the process must be in its part of the addresses. */
static EBPF_INLINE bool is_of_process(u64 at, u32 bits)
{
#if defined(__x86_64__)
	return !(at >> (bits - 1)); // the upper half is the kernel's
#else
	return !(at & direct_map);
#endif
}

// Returns where the direct map has physical memory; 0: not there. base is the kernel's variable.
static EBPF_INLINE u64 in_direct_map(u64 physical, u64 base)
{
#if defined(__x86_64__)
	return base + physical;
#else
	// Kernels that were built for more bits than the processor has keep a base that differs in
	// higher bits.
	u64 at = direct_map | (physical - base);
	return at < DIRECT_MAP_END ? at : 0;
#endif
}

// Returns the address in the direct map of user memory that is in RAM; 0: unknown, or not there.
__attribute__((noinline)) u64 find_in_direct_map(u64 at)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct mm_struct *mm = NULL;
	u64 base = direct_map, table = 0, entry = 0;
	u32 shift = PAGE_BITS + TABLE_BITS * page_table_levels;
	if (!is_of_process(at, shift))
		return 0;
	if (direct_map_symbol && bpf_probe_read_kernel(&base, sizeof(base), (void *)direct_map_symbol))
		return 0;
	if (READ(mm, task, mm) || !mm || READ(table, mm, pgd))
		return 0;
#if !defined(__x86_64__)
	// The top table lies in the map. This refuses a wrong number of address bits before it is used.
	if ((table | 0xffull << 56) < direct_map || (table | 0xffull << 56) >= DIRECT_MAP_END)
		return 0;
#endif
#pragma unroll 1
	for (int level = 0; level < 5; level++) {
		if (shift <= PAGE_BITS)
			break;
		shift -= TABLE_BITS;
		u64 index = at >> (shift & 63) & ((1ull << TABLE_BITS) - 1);
		if (bpf_probe_read_kernel(&entry, sizeof(entry), (void *)(table + index * 8)))
			return 0;
		bool present = entry & ENTRY_PRESENT;
		if (!present && !IS_MARKED(entry))
			return 0; // not in memory
		bool is_page = IS_LEAF(entry, shift);
		if (!present && !is_page)
			return 0;
#if defined(__x86_64__)
		if (!present)
			entry = ~entry; // the kernel inverts their addresses (asm/pgtable-invert.h)
#else
		if (entry & ENTRY_BEYOND)
			return 0;
#endif
		if ((entry & ENTRY_ADDRESS) >> PAGE_BITS >= memory_end)
			return 0;
		if (is_page) {
			u64 inside = (1ull << (shift & 63)) - 1;
			return in_direct_map((entry & ENTRY_ADDRESS & ~inside) + (at & inside), base);
		}
		table = in_direct_map(entry & ENTRY_ADDRESS, base);
		if (!table)
			return 0;
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
	u64 inside = (u64)source & (PAGE_BYTES - 1), at = (u64)source - inside;
	if (inside + size > PAGE_BYTES)
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
	if (page_table_levels && page && page->direct && page->at == ((u64)source & ~(PAGE_BYTES - 1)) &&
	    !read_marked(page, destination, size, source))
		return 0;
	long error = bpf_probe_read_user(destination, size, source);
	return error && page_table_levels && page ? read_marked(page, destination, size, source) : error;
}

#endif
