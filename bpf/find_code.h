/* SPDX-License-Identifier: GPL-2.0-only */
/* Code of processes whose unwind tables are not loaded yet. A new process calls CUDA before its
 * tables are loaded, but the tables of its libraries may be loaded for other processes. So if
 * the tree of mappings has no entry for an address, the process's own mapping tells the file
 * (bpf_find_vma, Linux 5.17). */
#ifndef VRAMPROF_FIND_CODE_H
#define VRAMPROF_FIND_CODE_H

#include "change_time.h"
#include "kernel_fields.h"
#include "unwinder_maps.h"
#include "verifier.h"

struct code_key {
	u64 inode;  /* address of the inode in the kernel */
	u64 offset; /* of the mapping in the file */
};

struct code {
	u64 file;   /* the unwinder's id of the file */
	u64 start;  /* ELF address of the mapping */
	/* Of the inode, whose address the kernel may have given to another file since: */
	u64 number;
	u64 changed; /* see changed_at */
	u32 device;
	u32 unused;
};

/* User space writes codes, find_code writes found_code. */
MAP(codes, BPF_MAP_TYPE_LRU_HASH, struct code_key, struct code, 16384);
MAP(found_code, BPF_MAP_TYPE_PERCPU_ARRAY, u32, PIDPageMappingInfo, 1);

struct mapped {
	struct code_key key;
	struct code code; /* without file; start is the mapping's address in the process */
};

// Callback of bpf_find_vma: copies the fields of the mapping.
static long note_mapped(struct task_struct *task, struct vm_area_struct *vma, void *to)
{
	struct mapped *mapped = to;
	struct file *file = NULL;
	struct inode *inode = NULL;
	struct super_block *device = NULL;
	unsigned long page = 0, number = 0, start = 0;
	READ(file, vma, vm_file);
	if (!file)
		return 0;
	READ(inode, file, f_inode);
	READ(page, vma, vm_pgoff);
	READ(start, vma, vm_start);
	READ(number, inode, i_ino);
	READ(device, inode, i_sb);
	READ(mapped->code.device, device, s_dev);
	mapped->key.inode = (u64)inode;
	mapped->key.offset = (u64)page << 12;
	mapped->code.start = start;
	mapped->code.number = number;
	mapped->code.changed = changed_at(inode);
	return 0;
}

// Fills found_code for an address of the current process. Returns 1 if the file is known.
VERIFIED_ONCE int find_code(u64 address)
{
	struct mapped mapped = {};
	u32 zero = 0;
	PIDPageMappingInfo *found = bpf_map_lookup_elem(&found_code, &zero);
	if (!found)
		return 0;
	bpf_find_vma(bpf_get_current_task_btf(), address, note_mapped, &mapped, 0);
	if (!mapped.key.inode)
		return 0;
	struct code *code = bpf_map_lookup_elem(&codes, &mapped.key);
	if (!code || code->number != mapped.code.number || code->changed != mapped.code.changed || code->device != mapped.code.device)
		return 0;
	found->file_id = code->file;
	found->bias_and_unwind_program = ((mapped.code.start - code->start) & ((1ull << 56) - 1)) | (u64)PROG_UNWIND_NATIVE << 56;
	return 1;
}

// Looks up an address in the tree of mappings and then in the process. The tree has an entry for
// address 0 of each loaded process.
static EBPF_INLINE void *mapping_at(PIDPage *key)
{
	void *known = bpf_map_lookup_elem(&pid_page_to_mapping_info, key);
	if (known || !key->page)
		return known;
	if (!find_code(__constant_cpu_to_be64(key->page)))
		return NULL;
	u32 zero = 0;
	return bpf_map_lookup_elem(&found_code, &zero);
}

#endif
